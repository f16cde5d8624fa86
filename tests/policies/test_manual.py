from __future__ import annotations

import itertools
from typing import Any

import pytest

from gateway.policies.manual import Manual, ManualOptions
from gateway.routing.sticky import digest
from gateway.routing.worker import Worker
from tests.policies.candidates import NEED, Traffic, need, worker, workers


def manual(live: list[Worker], *numbers: float, **options: Any) -> Manual:
    """Draws the first worker unless the numbers say otherwise."""
    policy = Manual(ManualOptions(**options), itertools.cycle(numbers or [0.0]).__next__)
    policy.keep(live)
    return policy


def test_key_stays_with_its_worker_whatever_the_load():
    live = workers(0, 0, 0)
    traffic = Traffic(manual(live, 0.5, 0.9, 0.0))
    for _ in range(5):
        traffic.call(live, need(routing_key="k"), ends=False)
    assert traffic.served == {"1": 5}


def test_key_without_its_worker_gets_a_stand_in_and_goes_back():
    live = workers(0, 0, 0)
    traffic = Traffic(manual(live, 0.0, 0.9))
    for candidates in (live, live[1:], live[1:], live, live[1:]):
        traffic.call(candidates, need(routing_key="k"))
    assert traffic.order == ["0", "2", "2", "0", "2"]


def test_key_whose_workers_are_both_away_gets_a_third_for_the_first():
    live = workers(0, 0, 0)
    traffic = Traffic(manual(live))
    for candidates in (live, live[1:], live[2:], live, live[::2]):
        traffic.call(candidates, need(routing_key="k"))
    assert traffic.order == ["0", "1", "2", "1", "2"]


def test_conversation_is_the_key_where_there_is_no_routing_key():
    live = workers(0, 0)
    policy = manual(live)
    policy.taken(live[1], need(conversation="c"), 0.0)
    policy.taken(live[0], need(routing_key="k", conversation="d"), 0.0)
    assert policy.choose(live, need(conversation="c"), 0.0)[0] is live[1]
    assert policy.choose(live, need(routing_key="k", conversation="c"), 0.0)[0] is live[0]


def test_call_without_key_is_assigned_and_not_remembered():
    live = workers(0, 0)
    traffic = Traffic(manual(live, 0.0, 0.9))
    for _ in range(4):
        traffic.call(live, NEED)
    assert (traffic.order, len(traffic.policy.memory)) == (["0", "1", "0", "1"], 0)


def test_key_is_forgotten_after_the_idle_time():
    live = workers(0, 0)
    traffic = Traffic(manual(live, 0.0, 0.9, max_idle_s=10.0))
    for now in (0.0, 9.9, 19.9):
        traffic.call(live, need(routing_key="k"), now)
    assert traffic.order == ["0", "0", "1"]


def test_mode_min_load_new_keys_go_to_the_fewest_calls_then_by_recency():
    live = [worker("a", 2, turn=1), worker("b", 1, turn=3), worker("c", 1, turn=2)]
    policy = manual(live, assignment_mode="min_load")
    assert policy.choose(live, need(routing_key="k"), 0.0) == (live[2], [(0.0, 2, 0), (0.0, 1, 0), (0.0, 1, 0)])


def test_mode_min_group_new_keys_go_to_the_fewest_keys():
    live = workers(0, 0, 5)
    policy = manual(live, assignment_mode="min_group")
    for at, key in ((0, "1"), (0, "2"), (1, "3"), (1, "4"), (2, "5")):
        policy.taken(live[at], need(routing_key=key), 0.0)
    chosen, terms = policy.choose(live, need(routing_key="new"), 0.0)
    assert (chosen, terms) == (live[2], [(0.0, 0, 2), (0.0, 0, 2), (0.0, 5, 1)])


@pytest.mark.parametrize("mode", ["min_load", "min_group"])
def test_modes_that_compare_spread_new_keys_evenly(mode: str):
    live = workers(0, 0, 0)
    served = Traffic(manual(live, assignment_mode=mode)).calls(
        30, lambda at: live, (need(routing_key=str(at)) for at in range(30))
    )
    assert served == {"0": 10, "1": 10, "2": 10}


def test_key_learnt_from_another_process_is_followed():
    live = workers(0, 0)
    policy = manual(live)
    policy.memory.learn(digest("k"), (live[1].spec.id,), 0.0)
    assert policy.choose(live, need(routing_key="k"), 1.0) == (live[1], [(0.0, 0, 0), (1.0, 0, 1)])


def test_worker_that_left_is_no_answer_for_its_keys():
    live = workers(0, 0)
    policy = manual(live)
    policy.taken(live[1], need(routing_key="k"), 0.0)
    policy.keep(live[:1])
    assert policy.choose(live[:1], need(routing_key="k"), 0.0)[0] is live[0]
