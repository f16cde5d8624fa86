from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.policies.cache_aware import CacheAware, CacheAwareOptions
from gateway.routing.policy import Policy
from gateway.routing.requirement import Need
from gateway.routing.worker import LoadReport, Worker
from tests.policies.candidates import NEED, Traffic, kept, need, worker, workers

HEAD = b"You are a helpful assistant. " * 20


def aware(live: list[Worker], **options: Any) -> Policy:
    return kept(CacheAware(CacheAwareOptions(**options)), live)


def sent(policy: Policy, *pairs: tuple[Worker, Need]) -> Policy:
    for each, call in pairs:
        policy.taken(each, call, 0.0)
    return policy


def says(cache_use: float | None) -> LoadReport:
    return LoadReport(1_700_000_000.0, cache_use=cache_use)


def test_prompt_goes_to_who_has_the_longest_beginning():
    live = workers(3, 0, 1)
    policy = sent(aware(live), (live[0], need(HEAD + b"q" * 200)), (live[2], need(HEAD)))
    chosen, terms = policy.choose(live, need(HEAD + b"q" * 220), 0.0)
    assert (chosen, terms) == (live[0], [(3, 780 / 800), (0, 0.0), (1, 580 / 800)])


def test_conversation_stays_while_other_workers_are_idle():
    live = workers(0, 0, 0)
    traffic = Traffic(aware(live))
    first, _ = traffic.call(live, need(HEAD), ends=False)
    for turn in range(1, 10):
        assert traffic.call(live, need(HEAD + b"more words " * turn), ends=False)[0] is first


@pytest.mark.parametrize(("length", "goes_to"), [(501, 0), (500, 1), (100, 1), (0, 1)])
def test_prompt_known_up_to_the_threshold_goes_to_the_least_loaded(length: int, goes_to: int):
    live = workers(1, 0)
    policy = sent(aware(live), (live[0], need(b"x" * length)))
    assert policy.choose(live, need(b"x" * 501 + b"y" * 499), 0.0)[0] is live[goes_to]


@pytest.mark.parametrize(
    ("loads", "goes_to"),
    [((32, 0), 0), ((33, 0), 1), ((133, 100), 1), ((433, 400), 0), ((441, 400), 1)],
)
def test_loads_out_of_balance_by_both_thresholds_the_least_loaded_gets_it(loads: tuple[int, int], goes_to: int):
    live = workers(*loads)
    policy = sent(aware(live, load_window=1000), (live[0], need(HEAD)))
    assert policy.choose(live, need(HEAD), 0.0)[0] is live[goes_to]


def test_worker_that_relieved_another_has_the_prompt_too():
    live = workers(33, 0)
    policy = sent(aware(live), (live[0], need(HEAD)))
    sent(policy, (policy.choose(live, need(HEAD), 0.0)[0], need(HEAD)))
    live[0].in_flight = 0
    live[1].in_flight = 1
    assert policy.choose(live, need(HEAD), 0.0)[1] == [(0, 1.0), (1, 1.0)]


@pytest.mark.parametrize(("load", "goes_to"), [(20, 0), (21, 1), (32, 1)])
def test_longest_beginning_wins_inside_the_window_only(load: int, goes_to: int):
    live = workers(load, 9, 4)
    policy = sent(aware(live), (live[0], need(HEAD)), (live[1], need(HEAD[:400])))
    assert policy.choose(live, need(HEAD), 0.0)[0] is live[goes_to]


def test_longest_beginning_of_no_candidate_the_next_longest_wins():
    live = workers(0, 5, 0)
    policy = sent(aware(live), (live[0], need(HEAD)), (live[1], need(HEAD[:400])))
    assert policy.choose(live[1:], need(HEAD), 0.0)[0] is live[1]


@pytest.mark.parametrize(("loads", "turns", "goes_to"), [((2, 1, 0), (1, 2, 3), 1), ((1, 1, 0), (5, 4, 3), 1)])
def test_equal_beginnings_are_told_apart_by_load_then_recency(
    loads: tuple[int, ...], turns: tuple[int, ...], goes_to: int
):
    live = [worker(str(at), load, turn) for at, (load, turn) in enumerate(zip(loads, turns, strict=True))]
    policy = sent(aware(live), (live[0], need(HEAD)), (live[1], need(HEAD)))
    assert policy.choose(live, need(HEAD), 0.0)[0] is live[goes_to]


def test_calls_without_prompt_go_by_load_then_recency():
    live = workers(0, 0, 1)
    assert Traffic(aware(live)).calls(40, lambda at: live) == {"0": 20, "1": 20}


def test_token_ids_match_by_whole_ids_and_only_each_other():
    live = workers(1, 1, 0)
    ids = b"".join(at.to_bytes(4, "little") for at in range(1, 101))
    policy = sent(aware(live), (live[0], need(ids, unit=4)), (live[1], need(ids, unit=1)))
    changed = ids[:-3] + b"\xff\xff\xff"  # the first byte of the last id is the same
    assert policy.choose(live, need(changed, unit=4), 0.0) == (live[0], [(1, 0.99), (1, 0.0), (0, 0.0)])


@pytest.mark.parametrize("unit", [1, 4])
def test_worker_that_left_has_nothing_when_it_is_back(unit: int):
    live = workers(1, 0)
    policy = sent(aware(live), (live[0], need(HEAD, unit=unit)))
    policy.keep(live[1:])
    policy.keep(live)
    assert policy.choose(live, need(HEAD, unit=unit), 0.0) == (live[1], [(1, 0.0), (0, 0.0)])


@pytest.mark.parametrize(("changes", "share"), [({"weight": 5}, 1.0), ({"url": "http://elsewhere:1"}, 0.0)])
def test_worker_edited_keeps_what_it_has_unless_it_moved(changes: dict[str, Any], share: float):
    live = workers(0, 0)
    policy = sent(aware(live), (live[0], need(HEAD)))
    live[0].spec = replace(live[0].spec, **changes)
    policy.keep(live)
    assert policy.choose(live, need(HEAD), 0.0)[1] == [(0, share), (0, 0.0)]


def test_prompts_alike_for_128_kib_count_as_the_same():
    live = workers(1, 0)
    policy = sent(aware(live), (live[0], need(b"x" * 131_072 + b"one")))
    _, terms = policy.choose(live, need(b"x" * 131_072 + b"other"), 0.0)
    assert terms == [(1, 1.0), (0, 0.0)]


@pytest.mark.parametrize(
    ("options", "uses", "goes_to"),
    [
        ({}, (1.0, 0.0, 0.5), 0),
        ({"overload_token_usage_threshold": 0.9}, (0.9, 0.0, 0.5), 0),
        ({"overload_token_usage_threshold": 0.9}, (0.91, 0.0, 0.5), 1),
        ({"overload_token_usage_threshold": 0.4}, (0.5, None, 0.5), 1),
        ({"overload_token_usage_threshold": 0.4}, (0.5, 0.5, 0.2), 2),
        ({"overload_token_usage_threshold": 0.4}, (0.5, 0.5, 0.5), 0),
        ({"balance_token_usage_threshold": 0.3}, (0.5, 0.2, 0.2), 0),
        ({"balance_token_usage_threshold": 0.3}, (0.51, 0.2, 0.2), 1),
        ({"balance_token_usage_threshold": 0.3}, (None, None, None), 0),
    ],
)
def test_worker_short_of_kv_memory_is_relieved_by_the_least_loaded_with_enough(
    options: dict[str, float], uses: tuple[float | None, ...], goes_to: int
):
    live = [worker(str(at), at, report=says(use)) for at, use in enumerate(uses)]
    policy = sent(aware(live, **options), (live[0], need(HEAD)))
    assert policy.choose(live, need(HEAD), 0.0)[0] is live[goes_to]


def test_word_on_kv_memory_that_is_old_counts_no_more():
    live = [worker("a", 1, report=says(0.95)), worker("b", 0)]
    policy = sent(aware(live, overload_token_usage_threshold=0.9), (live[0], need(HEAD)))
    assert policy.choose(live, need(HEAD), 30.0)[0] is live[1]
    assert policy.choose(live, need(HEAD), 30.1)[0] is live[0]


def test_choice_without_facts_is_by_load():
    live = workers(2, 1)
    assert aware(live).choose(live, NEED, 0.0) == (live[1], [(2, 0.0), (1, 0.0)])
