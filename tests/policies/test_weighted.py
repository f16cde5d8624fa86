from __future__ import annotations

import dataclasses
from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policies.weighted import Weighted
from gateway.routing.worker import Worker
from tests.policies.candidates import NEED, Traffic, kept, worker


def weighing(*weights: int) -> list[Worker]:
    return [worker(str(at), weight=weight) for at, weight in enumerate(weights)]


def traffic_of(live: list[Worker]) -> Traffic:
    return Traffic(kept(Weighted(), live))


def test_weighted_cycle_is_exact_and_interleaved():
    live = weighing(5, 1, 1)
    traffic = traffic_of(live)
    traffic.calls(14, lambda at: live)
    assert "".join(traffic.order) == "0012000" * 2


@settings(deadline=None)
@given(weights=st.lists(st.integers(1, 12), min_size=1, max_size=6), cycles=st.integers(1, 4))
def test_weighted_every_cycle_is_exact(weights: list[int], cycles: int):
    live = weighing(*weights)
    traffic = traffic_of(live)
    for cycle in range(1, cycles + 1):
        traffic.calls(sum(weights), lambda at: live)
        assert traffic.served == {str(at): cycle * weight for at, weight in enumerate(weights)}


def test_weighted_equal_weights_take_turns():
    live = weighing(3, 3, 3)
    traffic = traffic_of(live)
    traffic.calls(300, lambda at: live)
    assert max(len(list(run)) for _, run in groupby(traffic.order)) == 1


def test_weighted_large_unlike_weights_stay_exact():
    weights = [9973, 9967, 9949, 1]
    live = weighing(*weights)
    served = traffic_of(live).calls(sum(weights), lambda at: live)
    assert served == {str(at): weight for at, weight in enumerate(weights)}


def test_weighted_absent_worker_comes_back_without_a_burst():
    live = weighing(1, 1, 1)
    traffic = traffic_of(live)
    traffic.calls(300, lambda at: live[:2])
    traffic.served.clear()
    traffic.calls(12, lambda at: live)
    assert traffic.served == {"0": 4, "1": 3, "2": 5}  # one more than its share


def test_weighted_sole_worker_is_not_shunned_when_others_come_back():
    live = weighing(1, 1)
    traffic = traffic_of(live)
    traffic.calls(300, lambda at: live[:1])
    traffic.served.clear()
    traffic.calls(20, lambda at: live)
    assert traffic.served == {"0": 9, "1": 11}


def test_weighted_new_worker_begins_at_the_others_place():
    live = weighing(1, 1, 1)
    traffic = traffic_of(live[:2])
    traffic.calls(101, lambda at: live[:2])
    traffic.policy.keep(live)
    traffic.served.clear()
    traffic.calls(30, lambda at: live)
    assert sorted(traffic.served.values()) == [10, 10, 10]


def test_weighted_subsets_that_change_with_every_call_keep_the_proportions():
    live = weighing(4, 2, 1, 1)
    served = traffic_of(live).calls(800, lambda at: [each for each in live if each is not live[at % 4]])
    assert served == {"0": 400, "1": 200, "2": 100, "3": 100}


def test_weighted_edited_weight_acts_at_once():
    live = weighing(1, 1)
    traffic = traffic_of(live)
    traffic.calls(10, lambda at: live)
    live[0].spec = dataclasses.replace(live[0].spec, weight=1000)
    traffic.policy.keep(live)
    traffic.served.clear()
    assert traffic.calls(1001, lambda at: live)["0"] >= 999


def test_weighted_terms_are_the_time_until_due_and_the_weight():
    live = weighing(2, 1)
    traffic = traffic_of(live)
    assert traffic.policy.choose(live, NEED, 0.0) == (live[0], [(0.25, 2), (0.5, 1)])
    traffic.call(live)
    assert traffic.policy.choose(live, NEED, 0.0) == (live[1], [(0.5, 2), (0.25, 1)])
