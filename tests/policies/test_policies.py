"""What holds for every policy, and what each is for."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policies.least_requests import LeastRequests
from gateway.policies.random import RandomChoice
from gateway.policies.registry import POLICIES, PolicyEntry
from gateway.policies.round_robin import RoundRobin
from gateway.routing.options import describe, read_options
from gateway.routing.pool import Policy, Worker
from tests.routing.pools import NEED, pool_of, worker

every_policy = pytest.mark.parametrize("entry", POLICIES.values(), ids=POLICIES)


def made(entry: PolicyEntry) -> Policy:
    options, problems = read_options(entry.options, {}, "policy")
    assert problems == []
    return entry.make(options)


def workers(*load_and_turn: tuple[int, int]) -> list[Worker]:
    live = list(pool_of(*(worker(str(at)) for at in range(len(load_and_turn)))).workers)
    for each, (in_flight, turn) in zip(live, load_and_turn, strict=True):
        each.in_flight, each.turn = in_flight, turn
    return live


@every_policy
def test_entry_is_complete(entry: PolicyEntry):
    assert POLICIES[entry.name] is entry
    assert entry.summary
    assert all(info.help for info in describe(entry.options))


@every_policy
def test_policy_chooses_sole_candidate(entry: PolicyEntry):
    (only,) = workers((7, 7))
    assert made(entry).choose([only], NEED) is only


@every_policy
@given(state=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=9))
def test_policy_chooses_candidate_and_changes_nothing(entry: PolicyEntry, state: list[tuple[int, int]]):
    candidates = workers(*state)
    given_to_it = list(candidates)
    assert made(entry).choose(candidates, NEED) in given_to_it
    assert candidates == given_to_it
    assert [(each.in_flight, each.turn) for each in candidates] == state


@every_policy
def test_policy_without_options_is_made_by_its_name_alone(entry: PolicyEntry):
    assert entry.make(None).choose(workers((0, 0)), NEED)


@every_policy
def test_policy_over_many_calls_starves_nobody(entry: PolicyEntry):
    pool = pool_of(*(worker(name) for name in "abcd"))
    pool.policy = made(entry)
    counts: Counter[str] = Counter()
    for _ in range(400):
        got = pool.admit(NEED, 0)
        assert got is not None
        counts[got[1].worker.spec.name] += 1
        got[1].release()
    assert min(counts[name] for name in "abcd") >= 50


def test_round_robin_chooses_longest_unchosen_whatever_its_load():
    candidates = workers((0, 5), (9, 2), (0, 3))
    assert RoundRobin().choose(candidates, NEED) is candidates[1]


def test_round_robin_never_chosen_go_first_in_order():
    candidates = workers((0, 1), (0, 0), (0, 0))
    assert RoundRobin().choose(candidates, NEED) is candidates[1]


def test_least_requests_chooses_fewest_in_flight():
    candidates = workers((2, 1), (1, 9), (3, 0))
    assert LeastRequests().choose(candidates, NEED) is candidates[1]


def test_least_requests_equal_load_chooses_longest_unchosen():
    candidates = workers((1, 4), (2, 0), (1, 3))
    assert LeastRequests().choose(candidates, NEED) is candidates[2]


def test_random_spreads_evenly_under_seed():
    candidates, policy = workers((0, 0), (9, 9), (0, 0)), RandomChoice(random.Random(1).random)
    counts = Counter(policy.choose(candidates, NEED).spec.name for _ in range(3000))
    assert all(900 < count < 1100 for count in counts.values())
