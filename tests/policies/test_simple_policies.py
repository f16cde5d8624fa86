"""round_robin, random, passthrough, least_requests, weighted_least_requests."""

from __future__ import annotations

import random
from collections import Counter

from gateway.policies.least_requests import LeastRequests
from gateway.policies.passthrough import Passthrough
from gateway.policies.random import RandomChoice
from gateway.policies.round_robin import RoundRobin
from gateway.policies.weighted_least_requests import WeightedLeastRequests
from tests.policies.candidates import NEED, Traffic, worker, workers


def test_round_robin_chooses_longest_unchosen_whatever_its_load():
    candidates = [worker("a", 0, 5), worker("b", 9, 2), worker("c", 0, 3)]
    assert RoundRobin().choose(candidates, NEED, 0.0) == (candidates[1], ())


def test_round_robin_never_chosen_go_first_in_order():
    candidates = [worker("a", 0, 1), worker("b"), worker("c")]
    assert RoundRobin().choose(candidates, NEED, 0.0) == (candidates[1], ())


def test_round_robin_subsets_in_step_with_calls_still_reach_everybody_evenly():
    a, b, c, d = live = workers(0, 0, 0, 0)
    subsets = ([a, b, c], [b, c, d])  # a counter modulo 3 would only ever meet some of them
    served = Traffic(RoundRobin()).calls(400, lambda at: subsets[at % 2])
    assert served == {each.spec.name: 100 for each in live}


def test_random_spreads_evenly_under_seed():
    candidates, policy = workers(0, 9, 0), RandomChoice(random.Random(1).random)
    counts = Counter(policy.choose(candidates, NEED, 0.0)[0].spec.name for _ in range(3000))
    assert all(900 < count < 1100 for count in counts.values())


def test_passthrough_chooses_first_and_the_next_when_it_is_gone():
    candidates = workers(9, 0, 0)
    policy = Passthrough()
    assert policy.choose(candidates, NEED, 0.0) == (candidates[0], ())
    assert policy.choose(candidates[1:], NEED, 0.0) == (candidates[1], ())


def test_least_requests_chooses_fewest_in_flight():
    candidates = workers(2, 1, 3)
    assert LeastRequests().choose(candidates, NEED, 0.0) == (candidates[1], [(2,), (1,), (3,)])


def test_least_requests_equal_load_chooses_longest_unchosen():
    candidates = [worker("a", 1, 4), worker("b", 2, 0), worker("c", 1, 3)]
    assert LeastRequests().choose(candidates, NEED, 0.0)[0] is candidates[2]


def test_weighted_least_requests_chooses_fewest_for_its_weight():
    candidates = [worker("a", 7, weight=8), worker("b", 0, weight=1), worker("c", 2, weight=4)]
    chosen, terms = WeightedLeastRequests().choose(candidates, NEED, 0.0)
    assert chosen is candidates[2]
    assert terms == [(1.0, 7, 8), (1.0, 0, 1), (0.75, 2, 4)]


def test_weighted_least_requests_on_tie_chooses_longest_unchosen():
    candidates = [worker("a", 1, turn=4, weight=2), worker("b", 0, turn=3, weight=1)]
    assert WeightedLeastRequests().choose(candidates, NEED, 0.0)[0] is candidates[1]


def test_weighted_least_requests_under_load_fills_by_weight():
    live = [worker("a", weight=5), worker("b", weight=3), worker("c", weight=2)]
    traffic = Traffic(WeightedLeastRequests())
    for _ in range(100):
        traffic.call(live, ends=False)
    assert traffic.served == {"a": 50, "b": 30, "c": 20}
