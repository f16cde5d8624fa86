"""Who may take a call, and what stands against the others."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.policies.least_requests import LeastRequests
from gateway.policies.round_robin import RoundRobin
from gateway.routing.candidates import sort_out, why_not
from gateway.routing.decision import Exclusion
from gateway.routing.health import Health, HealthView
from gateway.routing.options import BreakerOptions
from gateway.routing.policy import Policy
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need, Profile
from gateway.routing.rest import RestReason
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerState
from tests.routing.pools import NEED, pool_of, worker

FRAGILE = BreakerOptions(failure_threshold=1, timeout_s=30.0)


def ready(pool: Pool, need: Need = NEED, now: float = 0.0) -> list[str]:
    active = [each for each in pool.workers if each.spec.state is WorkerState.ACTIVE]
    return [each.spec.name for each in sort_out(active, need, now).ready]


def three(**fields: object) -> Pool:
    return pool_of(worker("a", **fields), worker("b"), worker("c"), breaker=FRAGILE)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": WorkerState.DRAINING}, Exclusion.DRAINING),
        ({"state": WorkerState.DISABLED}, Exclusion.DISABLED),
        ({"profiles": (Profile(streaming=True),)}, Exclusion.PROFILE),
        ({"max_in_flight": 1}, Exclusion.FULL),
    ],
)
def test_worker_is_left_out_for_what_it_is(fields: dict[str, object], reason: Exclusion):
    pool = three(**fields)
    pool.workers[0].in_flight = 1
    assert ready(pool) == ["b", "c"]
    assert why_not(pool.workers[0], NEED, 0, (), is_sole=False) is reason


def test_worker_is_left_out_for_how_it_stands():
    pool = three()
    ill = pool.workers[0]
    ill.health = HealthView(Health.UNHEALTHY)
    assert (ready(pool), why_not(ill, NEED, 0, (), is_sole=False)) == (["b", "c"], Exclusion.UNHEALTHY)
    ill.health = HealthView()
    ill.breaker.failed(0)
    assert (ready(pool), why_not(ill, NEED, 0, (), is_sole=False)) == (["b", "c"], Exclusion.CIRCUIT_OPEN)


def test_target_leaves_out_all_others():
    need = Need(NEED.requirement, target="b")
    assert ready(three(), need) == ["b"]


def test_tried_worker_is_left_out():
    pool = three()
    found = sort_out(pool.workers, NEED, 0, {pool.workers[1].spec.id})
    assert [each.spec.name for each in found.ready] == ["a", "c"]


def test_resting_worker_goes_last_and_is_never_dropped():
    pool = three()
    for each in pool.workers[:2]:
        each.rest.begin(RestReason.RATE_LIMIT, 0)
    assert ready(pool) == ["c"]
    pool.workers[2].rest.begin(RestReason.RATE_LIMIT, 0)
    assert ready(pool) == ["a", "b", "c"]
    assert ready(pool, now=6) == ["a", "b", "c"]


def test_resting_worker_is_not_asked_while_another_will_have_room():
    pool = pool_of(worker("a"), worker("b", max_in_flight=1))
    pool.workers[0].rest.begin(RestReason.RATE_LIMIT, 0)
    pool.workers[1].in_flight = 1
    found = sort_out(pool.workers, NEED, 0)
    assert (found.ready, [each.spec.name for each in found.full]) == ([], ["b"])


def test_panic_below_half_ignores_breakers_but_no_refused_connection_and_no_ill_health():
    pool = pool_of(*(worker(name) for name in "abcde"), breaker=FRAGILE)
    for each in pool.workers[:3]:
        each.breaker.failed(0)
    pool.refused(pool.workers[1], 0)
    pool.workers[2].health = HealthView(Health.UNHEALTHY)
    assert ready(pool) == ["a", "d", "e"]
    assert ready(pool, now=5) == ["a", "b", "d", "e"]


def test_no_panic_at_half():
    pool = pool_of(*(worker(name) for name in "abcd"), breaker=FRAGILE)
    for each in pool.workers[:2]:
        each.breaker.failed(0)
    assert ready(pool) == ["c", "d"]


def test_batch_above_a_cap_goes_alone():
    pool = pool_of(worker("a", max_in_flight=4))
    large = Need(NEED.requirement, size=6)
    assert ready(pool, large) == ["a"]
    pool.workers[0].in_flight = 1
    assert ready(pool, large) == []


@pytest.mark.parametrize("policy", [RoundRobin(), LeastRequests()])
def test_worker_back_in_slow_start_never_has_twice_its_fair_share(policy: Policy):
    pool = pool_of(*(worker(name) for name in "abcd"), by=policy, breaker=BreakerOptions(1, timeout_s=1.0))
    pool.workers[0].breaker.failed(0)
    running, shares = [], []
    for second in range(1, 21):
        served: Counter[str] = Counter()
        for at in range(50):
            now = second + at / 50
            got = pool.admit(NEED, now)
            assert got is not None
            running.append((now + 0.2, got))
            served[got[1].worker.spec.name] += 1
            for until, (call, lease) in [each for each in running if each[0] <= now]:
                lease.finish(Signal.SUCCESS, now)
                lease.release()
                call.release()
                running.remove((until, (call, lease)))
        shares.append(served["a"] / 12.5)
    assert max(shares) <= 2
    assert shares[0] <= 0.5
    assert sum(shares[15:]) / 5 >= 0.8


def test_facts_split_over_two_profile_rows_match_no_worker():
    rows = (Profile(services=frozenset({"chat"}), streaming=True), Profile(services=frozenset({"speech"})))
    assert ready(three(profiles=rows)) == ["b", "c"]
    assert ready(three(profiles=(*rows, Profile(streaming=False)))) == ["a", "b", "c"]


def test_sole_active_worker_is_ready_with_an_open_breaker_but_not_when_ill():
    pool = pool_of(worker("a"), worker("b", state=WorkerState.DISABLED), breaker=FRAGILE)
    pool.workers[0].breaker.failed(0)
    assert ready(pool) == ["a"]
    pool.workers[0].health = HealthView(Health.UNHEALTHY)
    assert ready(pool) == []


def test_panic_is_told_with_the_worker_that_refused_just_now():
    pool = pool_of(worker("a"), worker("b"), breaker=FRAGILE)
    for each in pool.workers:
        each.breaker.failed(0)
    pool.refused(pool.workers[0], 0)
    why = pool.explain(NEED, 0)
    assert (why.chosen, why.note, why.excluded) == ("b", "panic", (("a", Exclusion.REFUSED.value),))


def test_worker_in_slow_start_is_used_when_nobody_else_has_room():
    pool = pool_of(worker("a"), worker("b", max_in_flight=1), breaker=FRAGILE)
    returned = pool.workers[0]
    returned.breaker.failed(0)
    returned.breaker.succeeded(31, returned.breaker.begin(31))
    for _ in range(20):
        returned.counts_in_ramp(True, 2)
    assert (ready(pool, now=31), why_not(returned, NEED, 31, (), is_sole=False)) == (["b"], Exclusion.SLOW_START)
    pool.workers[1].in_flight = 1
    assert ready(pool, now=31) == ["a"]
