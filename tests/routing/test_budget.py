"""Retries help against one bad worker, and do not feed an outage."""

from __future__ import annotations

import pytest

from gateway.routing.budget import RetryBudget
from gateway.routing.options import BreakerOptions, RetryOptions
from gateway.routing.pool import Pool
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerId
from tests.routing.pools import NEED, pool_of, worker

A, B = WorkerId("a"), WorkerId("b")


def budget(calls: int = 0, now: float = 0.0, **options: float) -> RetryBudget:
    made = RetryBudget(RetryOptions(**options))  # type: ignore[arg-type]
    for _ in range(calls):
        made.called(now)
    return made


def test_budget_without_calls_permits_a_few_at_once():
    made = budget(concurrent=3)
    granted = []
    for _ in range(4):
        granted.append(made.permits(0, [A]))
        made.began(0)
    assert granted == [True, True, True, False]
    made.ended()
    assert not made.permits(0, [A])
    made.ended()
    assert made.permits(0, [A])


def test_budget_permits_a_share_of_the_calls_of_ten_seconds():
    made = budget(calls=100, concurrent=0)
    for _ in range(19):
        made.began(0)
    assert made.permits(0, [A])
    made.began(0)
    assert not made.permits(0, [A])
    assert not made.permits(10, [A])


def test_budget_is_off_while_more_than_a_tenth_of_attempts_fail_beside_the_worst_worker():
    made = budget(calls=100)
    for at in range(20):
        made.attempted(A, Signal.FAILURE, 0)
        made.attempted(B, Signal.FAILURE if at < 2 else Signal.SUCCESS, 0)
    assert made.permits(0, [A, B])
    made.attempted(B, Signal.FAILURE, 0)
    assert not made.permits(0, [A, B])
    assert made.permits(10, [A, B])


def test_budget_is_off_when_no_breaker_is_closed():
    assert not budget(calls=100).permits(0, [])


def test_budget_neutral_attempts_say_nothing():
    made = budget(calls=100)
    for _ in range(50):
        made.attempted(A, Signal.NEUTRAL, 0)
    assert not made.is_failing(0, [A])


def serve(pool: Pool, now: float, bad: set[str]) -> tuple[bool, int]:
    """One call with at most two attempts: whether it ended well, and the attempts it took."""
    got = pool.admit(NEED, now)
    assert got is not None
    call, lease = got
    attempts, is_good = 1, False
    while True:
        is_good = lease.worker.spec.name not in bad
        lease.finish(Signal.SUCCESS if is_good else Signal.FAILURE, now)
        following = None if is_good or attempts == 2 else pool.choose(NEED, {lease.worker.spec.id}, now)
        lease.release()
        if following is None:
            call.release()
            return is_good, attempts
        lease, attempts = following, attempts + 1


@pytest.mark.parametrize("names", ["ab", "abcde"])
def test_black_hole_loses_no_call(names: str):
    pool = pool_of(*(worker(name) for name in names))
    results = [serve(pool, at / 50, {"a"}) for at in range(1000)]
    assert all(is_good for is_good, _ in results)


def test_total_outage_is_hardly_amplified():
    pool = pool_of(*(worker(name) for name in "abc"), breaker=BreakerOptions())
    attempts = sum(serve(pool, at / 50, {"a", "b", "c"})[1] for at in range(500))
    assert attempts <= 1.25 * 500


def test_refused_connection_is_tried_elsewhere_whatever_the_budget():
    pool = pool_of(worker("a"), worker("b"), retry=RetryOptions(budget_percent=0, concurrent=0))
    got = pool.admit(NEED, 0)
    assert got is not None
    tried = {got[1].worker.spec.id}
    assert pool.choose(NEED, tried, 0) is None
    assert pool.choose(NEED, tried, 0, is_free=True) is not None
