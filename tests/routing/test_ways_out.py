"""Whatever way a call leaves, also through a policy that raises, its places are given back once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.routing.lease import WorkerLease
from gateway.routing.options import BreakerOptions
from gateway.routing.policy import Track
from gateway.routing.requirement import Need
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerState
from gateway.routing.worker import Worker
from tests.routing.pools import NEED, WHOLE, Recency, Shared, pool_of, worker

IDLE = worker("idle", state=WorkerState.DISABLED)  # with it the policy is told of what happens

WAYS_OUT: dict[str, Callable[[WorkerLease], None]] = {
    "success": lambda lease: lease.finish(Signal.SUCCESS, 3),
    "failure": lambda lease: lease.finish(Signal.FAILURE, 3),
    "neutral": lambda lease: lease.finish(Signal.NEUTRAL, 3),
    "nothing said": lambda lease: None,
    "said twice": lambda lease: [lease.finish(Signal.FAILURE, 3), lease.finish(Signal.SUCCESS, 4)][0],
}


class Faulty(Recency):
    """Raises where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def taken(self, worker: Worker, need: Need, now: float) -> Track:
        if self.where == "taken":
            raise LookupError
        return self

    def answered(self, now: float) -> None:
        """Is told nothing here."""

    def progressed(self, tokens: int, now: float) -> None:
        """Is told nothing here."""

    def ended(self, signal: Signal, tokens: int, now: float) -> None:
        raise LookupError


@pytest.mark.parametrize("way_out", WAYS_OUT)
@pytest.mark.parametrize("size", [1, 3])
def test_call_gives_its_places_back_once(way_out: str, size: int):
    host, need = Shared(), Need(WHOLE, size=size)
    pool = pool_of(worker("a"), cell=host.cells_of(1))
    pool.admit(need, 0)
    got = pool.admit(need, 0)
    assert got is not None
    WAYS_OUT[way_out](got[1])
    for lease in (*got, *got):
        lease.release()
    counts = (pool.in_flight, pool.workers[0].in_flight, host.calls("pool"), host.calls("a"))
    assert counts == (size, size, size, size)


@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_retry_gives_its_places_back_once_and_counts_no_more_in_the_budget(way_out: str):
    pool = pool_of(worker("a"), worker("b"))
    got = pool.admit(NEED, 3)
    assert got is not None
    retry = pool.choose(NEED, {got[1].worker.spec.id}, 3, is_free=True)
    assert retry is not None
    got[1].release()
    WAYS_OUT[way_out](retry)
    for lease in (retry, retry):
        lease.release()
    assert (pool.budget._running, [each.in_flight for each in pool.workers], pool.in_flight) == (0, [0, 0], 1)


@pytest.mark.parametrize("is_retry", [False, True])
def test_policy_that_raises_when_told_of_its_choice_leaves_nothing_counted(is_retry: bool):
    host = Shared()
    pool = pool_of(worker("a"), IDLE, by=Faulty("taken"), breaker=BreakerOptions(1), cell=host.cells_of(1))
    pool.workers[0].breaker.failed(0)
    with pytest.raises(LookupError):
        pool.choose(NEED, (), 2, is_free=True) if is_retry else pool.admit(NEED, 2)
    counts = (pool.in_flight, pool.workers[0].in_flight, pool.budget._running, host.calls("a"), host.calls("pool"))
    assert (counts, pool.workers[0].breaker.permits(2)) == ((0, 0, 0, 0, 0), True)


def test_track_that_raises_at_the_end_does_not_keep_the_place():
    pool = pool_of(worker("a"), IDLE, by=Faulty("ended"))
    got = pool.admit(NEED, 1)
    assert got is not None
    with pytest.raises(LookupError):
        got[1].release()
    got[0].release()
    assert (pool.in_flight, pool.workers[0].in_flight) == (0, 0)
