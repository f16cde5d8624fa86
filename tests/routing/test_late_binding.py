"""A call that had better wait for a full worker waits, holds nobody up, and goes anywhere when its wait is over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.routing.options import QueueOptions
from gateway.routing.pool import Pool
from gateway.routing.queue import Ticket
from gateway.routing.requirement import Need
from gateway.routing.snapshot import WorkerId
from gateway.routing.worker import Worker
from tests.routing.pools import NEED, WHOLE, Recency, pool_of, worker

PATIENT = Need(WHOLE, routing_key="fast")


class Patient(Recency):
    """Calls with a routing key wait for the full worker of that name."""

    binds_late = True

    def __init__(self) -> None:
        self.ranks: list[int] = []

    def would_wait(
        self, candidates: Sequence[Worker], full: Sequence[Worker], need: Need, now: float, rank: int
    ) -> bool:
        self.ranks.append(rank)
        return any(each.spec.name == need.routing_key for each in full)


def busy_pool(size: int | None = 10) -> Pool:
    """`fast` is at its cap, `slow` is free."""
    pool = pool_of(
        worker("fast", max_in_flight=1), worker("slow", max_in_flight=5), by=Patient(), queue=QueueOptions(size=size)
    )
    assert pool.admit(Need(WHOLE, target="fast"), 0) is not None
    return pool


def chosen(pool: Pool, need: Need) -> str:
    got = pool.admit(need, 0)
    return got[1].worker.spec.name if got is not None else "waits"


def waits(pool: Pool, need: Need = PATIENT) -> Ticket:
    ticket = pool.join(need, lambda: None, 0)
    assert ticket.admit(0) is None
    return ticket


def test_call_waits_only_for_the_worker_it_prefers():
    assert [chosen(busy_pool(), need) for need in (PATIENT, NEED)] == ["waits", "slow"]


@pytest.mark.parametrize(("size", "goes_to"), [(0, "slow"), (1, "waits")])
def test_call_that_may_not_wait_goes_to_the_next_best(size: int, goes_to: str):
    assert chosen(busy_pool(size), PATIENT) == goes_to


def test_call_that_prefers_to_wait_holds_nobody_up():
    pool = busy_pool()
    waits(pool)
    assert [chosen(pool, NEED) for _ in range(3)] == ["slow"] * 3


def test_call_that_prefers_to_wait_is_woken_when_there_is_nothing_to_wait_for():
    pool, woken = busy_pool(), []
    other = pool.choose(NEED, {WorkerId("fast")}, 0, is_free=True)
    ticket = pool.join(PATIENT, lambda: woken.append("x"), 0)
    assert ticket.admit(0) is None
    assert other is not None
    other.release()
    assert woken == []
    pool.update(pool.spec, [pool.workers[1]], pool.policy)  # there is no full worker any more
    assert woken == ["x"]
    assert ticket.admit(0) is not None


def test_call_whose_wait_is_over_goes_to_the_next_best():
    pool = busy_pool()
    ticket = waits(pool)
    got = ticket.admit(1, is_last=True)
    assert got is not None
    assert (got[1].worker.spec.name, pool.waiting) == ("slow", 0)


def test_call_is_told_how_many_wait_before_it():
    pool = busy_pool()
    for _ in range(3):
        waits(pool)
    policy = pool.policy
    assert isinstance(policy, Patient)
    policy.ranks.clear()
    assert pool.admit(PATIENT, 0) is None
    assert policy.ranks == [0, 1, 2, 3]
