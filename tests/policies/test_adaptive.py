from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from gateway.policies.adaptive import Adaptive, AdaptiveOptions
from gateway.routing.policy import Policy
from gateway.routing.retry import Signal
from gateway.routing.worker import Worker
from tests.policies.candidates import NEED, Traffic, kept, worker, workers


def adaptive(live: list[Worker], **options: Any) -> Policy:
    return kept(Adaptive(AdaptiveOptions(**options), random.Random(4).random), live)


def answer(policy: Policy, to: Worker, *ttfts_ms: float, at: float = 0.0) -> None:
    for ttft_ms in ttfts_ms:
        track = policy.taken(to, NEED, at)
        assert track is not None
        track.answered(at + ttft_ms / 1000)
        track.ended(Signal.SUCCESS, 10, at + ttft_ms / 1000 + 1)


def end(policy: Policy, to: Worker, *signals: Signal, at: float = 0.0) -> None:
    for signal in signals:
        track = policy.taken(to, NEED, at)
        assert track is not None
        track.ended(signal, 0, at)


def scores(policy: Policy, live: list[Worker], now: float = 0.0) -> list[float]:
    return [its[0] for its in policy.choose(live, NEED, now)[1]]


def ttfts(policy: Policy, live: list[Worker], now: float = 0.0) -> list[float]:
    return [its[1] for its in policy.choose(live, NEED, now)[1]]


FAILURES = (Signal.FAILURE,) * 3


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [4 / (3 * (0.7 * 200 / 50 + 0.3)), 1 / (0.7 * 25 / 50 + 0.3)]),  # the formula as published
        ({"alpha": 1.0}, [4 / (3 * 200 / 50), 50 / 25]),  # its code
        ({"alpha": 1.0, "use_weights": False}, [1 / (3 * 200 / 50), 50 / 25]),
        ({"alpha": 0.0}, [4 / 3, 1]),
        ({"base_ttft_ms": 100.0, "alpha": 1.0}, [4 / (3 * 200 / 100), 100 / 25]),
    ],
)
def test_adaptive_score_is_the_formula(options: dict[str, Any], wanted: list[float]):
    live = [worker("a", 2, weight=4), worker("b", 0)]
    policy = adaptive(live, **options)
    answer(policy, live[0], 150, 250)
    answer(policy, live[1], 25)
    assert scores(policy, live) == pytest.approx(wanted)


def test_adaptive_chooses_highest_score_and_shows_the_terms():
    live = [worker("a", 1, weight=4), worker("b", 0)]
    policy = adaptive(live, alpha=1.0)
    assert policy.choose(live, NEED, 0.0) == (live[0], [(1.0, 100.0, 1, 4, 0), (0.5, 100.0, 0, 1, 0)])


def test_adaptive_mean_is_over_the_last_answers_and_has_a_floor():
    live = workers(0, 0, 0)
    policy = adaptive(live, window=3)
    answer(policy, live[0], 900, 900, 10, 20, 30)
    answer(policy, live[1], 2)
    assert ttfts(policy, live) == pytest.approx([20, 10, 100])


def test_adaptive_answer_counts_while_its_stream_still_runs():
    live = workers(0)
    policy = adaptive(live)
    track = policy.taken(live[0], NEED, 5.0)
    assert track is not None
    track.answered(5.03)
    track.progressed(1, 5.04)
    assert ttfts(policy, live) == pytest.approx([30])


def test_adaptive_failures_in_a_row_take_the_score_for_ever():
    live = workers(0, 5)
    policy = adaptive(live)
    end(policy, live[0], *FAILURES[:2])
    assert policy.choose(live, NEED, 0.0)[0] is live[0]
    end(policy, live[0], Signal.NEUTRAL, Signal.FAILURE)
    assert policy.choose(live, NEED, 1e6)[0] is live[1]
    assert scores(policy, live, 1e6)[0] == 0.0


def test_adaptive_success_ends_the_row():
    live = workers(0, 0)
    policy = adaptive(live)
    end(policy, live[0], *FAILURES, Signal.SUCCESS, *FAILURES[:2])
    assert scores(policy, live)[0] > 0


def test_adaptive_streak_of_zero_counts_no_failures():
    live = workers(0, 0)
    policy = adaptive(live, failure_streak=0)
    end(policy, live[0], *FAILURES)
    assert scores(policy, live)[0] > 0


def test_adaptive_all_without_score_are_all_tried():
    live = workers(0, 0, 0)
    traffic = Traffic(adaptive(live))
    for each in live:
        end(traffic.policy, each, *FAILURES)
    assert min(traffic.calls(90, lambda at: live)[each.spec.name] for each in live) > 15


def test_adaptive_half_open_lets_one_call_through_at_a_time():
    live = workers(0, 5)
    policy = adaptive(live, half_open_s=10.0)
    end(policy, live[0], *FAILURES, at=100.0)
    assert [scores(policy, live, now)[0] > 0 for now in (109.9, 110.0)] == [False, True]
    trial = policy.taken(live[0], NEED, 110.0)
    assert trial is not None
    assert scores(policy, live, 111.0)[0] == 0
    trial.ended(Signal.FAILURE, 0, 115.0)
    assert [scores(policy, live, now)[0] > 0 for now in (124.9, 125.0)] == [False, True]
    end(policy, live[0], Signal.SUCCESS, at=126.0)
    assert scores(policy, live, 126.0)[0] > 0


def test_adaptive_old_mean_fades_to_the_initial_value_if_asked():
    live = workers(0)
    seed, repaired = adaptive(live), adaptive(live, max_age_s=10.0)
    for policy in (seed, repaired):
        answer(policy, live[0], 500, at=0.0)
    ages = [now + 0.5 for now in (10.0, 15.0, 20.0, 99.0)]
    assert [ttfts(seed, live, now)[0] for now in ages] == pytest.approx([500] * 4)
    assert [ttfts(repaired, live, now)[0] for now in ages] == pytest.approx([500, 300, 100, 100])


def test_adaptive_ties_go_at_random_or_by_recency():
    live = [worker("0", turn=9), worker("1", turn=3), worker("2", turn=5)]
    drawing = adaptive(live)
    assert {drawing.choose(live, NEED, 0.0)[0].spec.name for _ in range(50)} == {"0", "1", "2"}
    assert adaptive(live, ties_by_recency=True).choose(live, NEED, 0.0)[0] is live[1]


def test_adaptive_worker_at_another_address_is_a_new_one():
    live = workers(0, 0)
    policy = adaptive(live)
    for each in live:
        answer(policy, each, 300)
    live[0].spec = dataclasses.replace(live[0].spec, url="http://elsewhere:1")
    live[1].spec = dataclasses.replace(live[1].spec, weight=2)
    policy.keep(live)
    assert ttfts(policy, live) == pytest.approx([100, 300])


def test_adaptive_prefers_the_faster_until_it_has_more_to_do():
    live = workers(0, 0)
    policy = adaptive(live, alpha=1.0)
    answer(policy, live[0], 40)
    answer(policy, live[1], 130)
    traffic = Traffic(policy)
    for _ in range(40):
        traffic.call(live, ends=False)
    assert traffic.served == {"0": 31, "1": 9}
