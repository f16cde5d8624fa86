"""The order in which policies come out of the simulator, in its quick form. Figures are in `make sim`."""

from __future__ import annotations

import functools

import pytest

from tests.sim.__main__ import quick_number
from tests.sim.clock import Clock
from tests.sim.engine import A100, XEON, Engine, Job
from tests.sim.tables import LOADS, OVERLOAD, SCENARIOS, Figures, figures
from tests.sim.workloads import Burst, Request, chats, independent, text_of

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@functools.cache
def outcome(name: str) -> dict[str, Figures]:
    """The figures of each contender."""
    scenario = BY_NAME[name]
    number = quick_number(scenario)
    return {each.title: figures(scenario, each, scenario.seeds[0], number) for each in scenario.contenders}


def ran(engine: Engine, clock: Clock, *requests: Request) -> list[tuple[float, float]]:
    """When each request, all sent at once, had its first token and its last."""
    times: dict[int, list[float]] = {at: [] for at in range(len(requests))}
    for at, request in enumerate(requests):
        note = functools.partial(lambda its: its.append(clock.now), times[at])
        engine.begin(Job(request, note, note))
    clock.run(lambda: all(len(its) == 2 for its in times.values()))
    return [(its[0], its[1]) for its in times.values()]


def test_engine_alone_takes_prefill_and_steps():
    clock = Clock()
    ((first, done),) = ran(Engine(A100, clock), clock, Request(0, 1700, 101))
    assert first == pytest.approx(1700 / 17_000 + 0.012 + 0.002)
    assert done - first == pytest.approx(100 * 0.01215)


def test_engine_prefills_one_prompt_after_another_and_slows_streams_meanwhile():
    clock = Clock()
    one, two = ran(Engine(A100, clock), clock, Request(0, 1700, 101), Request(0, 17_000, 2))
    prefill_s = 1.0 * (1 + 0.3 / 64) + 0.012
    assert two[0] - one[0] == pytest.approx(prefill_s)
    assert one[1] - one[0] == pytest.approx(100 * 0.01215 + prefill_s / 2, rel=0.01)


def test_engine_with_full_batch_lets_requests_wait():
    clock = Clock()
    times = ran(Engine(XEON, clock), clock, *[Request(0, 16, 50)] * 17)
    assert times[16][0] > min(done for _, done in times)


def test_engine_finds_beginnings_in_its_cache():
    clock = Clock()
    engine = Engine(A100, clock)
    requests = [
        Request(0, 1100, 10, 1, 1000, 1),
        Request(0, 1100, 10, 1, 1000, 2),
        Request(0, 1300, 9, 1, 1000, 1, 110),
    ]
    ran(engine, clock, *requests)
    assert (engine.cached, engine.prompted) == (1000 + 1110, 3500)


def test_workload_is_told_by_its_seed():
    assert independent(50, 10.0, 1, Burst()) == independent(50, 10.0, 1, Burst())
    assert chats(50, 10.0, 1) != chats(50, 10.0, 2)


def test_prompts_of_a_conversation_grow_and_share_the_system_prompt():
    requests = chats(2000, 90.0, 3)
    last: dict[int | None, bytes] = {}
    for request in requests:
        text = text_of(request)
        assert len(text) == 4 * request.prompt
        assert text.startswith(last.get(request.conversation, b""))
        last[request.conversation] = text
    one, other = [each for each in requests if each.group == 0][:2]
    assert text_of(one)[: 4 * one.shared] == text_of(other)[: 4 * one.shared]


def test_run_is_told_by_its_seed():
    scenario = BY_NAME["D"]
    one, other = (figures(scenario, scenario.contenders[2], 1, 300) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("name", ["A15", "A50", "A80", "C", "D"])
def test_predict_ends_calls_as_soon_as_any_policy(name: str):
    its = outcome(name)
    best_s = min(each["e2e_s"] for each in its.values())
    assert its["predict"]["e2e_s"] <= 1.02 * best_s


def test_caps_and_late_binding_keep_predict_ahead():
    its = outcome("A-cap")
    assert its["predict"]["e2e_s"] <= 1.02 * min(each["e2e_s"] for each in its.values())
    assert its["predict"]["slo"] == max(each["slo"] for each in its.values())


@pytest.mark.parametrize("figure", ["ttft_ms", "ttft_p99_ms", "tokens_per_s"])
def test_seeds_comparison_comes_out_in_its_order(figure: str):
    its = outcome("A80")
    round_robin, least, adaptive = (its[name][figure] for name in ("round_robin", "least_requests", "adaptive"))
    assert sorted((round_robin, least, adaptive), reverse=figure != "tokens_per_s") == [round_robin, least, adaptive]


def test_black_hole_attracts_whom_it_should_not():
    its = outcome("E-none")
    assert its["predict"]["errors"] < 1
    assert its["least_requests"]["errors"] > 20


def test_black_hole_with_one_retry_costs_predict_nothing():
    assert outcome("E-retry")["predict"]["errors"] == 0


def test_black_hole_with_retry_and_breaker_costs_nobody_anything():
    assert {title: each["errors"] for title, each in outcome("E-both").items()} == dict.fromkeys(outcome("E-both"), 0)


def test_overload_with_caps_and_short_queue_keeps_goodput():
    scenarios = [scenario for scenario in OVERLOAD if scenario.title == "caps, queue of 16, 1 s, late binding"]
    good = [figures(each, each.contenders[0], 103, quick_number(each))["goodput"] for each in scenarios]
    assert len(good) == len(LOADS)
    assert good[-1] >= 0.95 * max(good)


def test_overload_without_caps_loses_goodput():
    scenario = next(each for each in OVERLOAD if each.title.startswith("none") and each.name == "F x4")
    assert figures(scenario, scenario.contenders[0], 103, quick_number(scenario))["goodput"] < 9
