from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from gateway.policies.registry import POLICIES
from gateway.routing.health import UNSEEN, Health, HealthView
from gateway.routing.options import BreakerOptions, HealthOptions, QueueOptions
from gateway.routing.retry import Signal
from gateway.routing.snapshot import PolicySpec, PoolSpec, Snapshot, WorkerId, WorkerState
from gateway.routing.table import Table
from tests.routing.pools import NEED, pool_spec, worker

ILL = HealthView(Health.UNHEALTHY, "timeout")
A = WorkerId("a")


def table_of(*specs: PoolSpec) -> Table:
    table = Table({name: entry.make for name, entry in POLICIES.items()})
    table.apply(snapshot(*specs))
    return table


def snapshot(*specs: PoolSpec) -> Snapshot:
    pools = {spec.model: spec for spec in specs}
    return Snapshot(1, pools, pools, {})


def test_apply_same_again_keeps_every_live_object():
    spec = pool_spec(worker("a"))
    table = table_of(spec)
    before = (table.pool(spec), table.pool(spec).policy, *table.workers())
    table.apply(snapshot(spec))
    assert (table.pool(spec), table.pool(spec).policy, *table.workers()) == before


def test_apply_edited_worker_keeps_counts_and_breaker():
    old = pool_spec(worker("a"))
    table = table_of(old)
    got = table.pool(old).admit(NEED, 0)
    assert got is not None
    got[1].finish(Signal.FAILURE, 0)
    new = pool_spec(worker("a", max_in_flight=1), breaker=BreakerOptions(timeout_s=7.0))
    table.apply(snapshot(new))
    (live,) = table.workers()
    assert (live.in_flight, live.breaker.failures, live.breaker.options.timeout_s) == (1, 1, 7.0)
    assert table.pool(new).admit(NEED, 0) is None


def test_apply_worker_at_another_url_starts_with_fresh_breaker():
    table = table_of(pool_spec(worker("a")))
    next(iter(table.workers())).breaker.failed(0)
    table.apply(snapshot(pool_spec(replace(worker("a"), url="http://elsewhere:1"))))
    assert next(iter(table.workers())).breaker.failures == 0


def test_apply_drained_worker_gets_no_more_calls_and_keeps_its_own():
    spec = pool_spec(worker("a"), worker("b"))
    table = table_of(spec)
    table.pool(spec).admit(NEED, 0)
    table.apply(snapshot(pool_spec(worker("a", state=WorkerState.DRAINING), worker("b"))))
    got = [table.pool(spec).admit(NEED, 0) for _ in range(2)]
    assert [each[1].worker.spec.name for each in got if each] == ["b", "b"]
    assert [each.in_flight for each in table.workers()] == [1, 2]


def test_apply_removed_pool_lives_with_its_last_lease():
    spec = pool_spec(worker("a"))
    table = table_of(spec)
    got = table.pool(spec).admit(NEED, 0)
    assert got is not None
    table.apply(snapshot())
    pool = weakref.ref(table.pool(spec))
    assert [*table.workers()] == []
    for lease in reversed(got):
        lease.release()
    del got, lease
    gc.collect()
    assert pool() is None


def test_apply_pool_that_comes_back_while_in_use_keeps_counts():
    spec = pool_spec(worker("a"))
    table = table_of(spec)
    got = table.pool(spec).admit(NEED, 0)
    table.apply(snapshot())
    table.apply(snapshot(spec))
    assert got is not None
    assert (table.pool(spec).in_flight, [each.in_flight for each in table.workers()]) == (1, [1])


def test_pool_of_dropped_specification_still_serves():
    table, dropped = table_of(), pool_spec(worker("a"))
    pool = table.pool(dropped)
    assert pool.admit(NEED, 0) is not None
    assert table.pool(dropped) is pool
    assert [*table.pools()] == []


def test_apply_edited_policy_is_made_anew():
    spec = pool_spec(worker("a"))
    table = table_of(spec)
    table.apply(snapshot(replace(spec, policy=PolicySpec("least_requests", None))))
    assert type(table.pool(spec).policy).__name__ == "LeastRequests"


def test_apply_unknown_policy_changes_nothing():
    spec = pool_spec(worker("a"))
    table = table_of(spec)
    with pytest.raises(KeyError):
        table.apply(snapshot(pool_spec(worker("b"), id=2), replace(spec, policy=PolicySpec("no such", None))))
    assert [each.spec.id for each in table.workers()] == ["a"]


def test_apply_more_room_wakes_who_waits():
    queue = QueueOptions(size=1)
    spec, woken = pool_spec(worker("a"), max_in_flight=1, queue=queue), []
    table = table_of(spec)
    pool = table.pool(spec)
    assert pool.admit(NEED, 0) is not None
    pool.join(lambda: woken.append("x"), 0).admit(NEED, 0)
    table.apply(snapshot(replace(spec, max_in_flight=2)))
    assert woken == ["x"]


def test_set_health_reaches_named_workers_only():
    table = table_of(pool_spec(worker("a"), worker("b")))
    table.set_health({A: ILL})
    assert [each.health for each in table.workers()] == [ILL, UNSEEN]


def test_set_health_before_worker_is_configured_is_remembered():
    table = table_of()
    table.set_health({A: ILL})
    table.apply(snapshot(pool_spec(worker("a"))))
    assert [each.health for each in table.workers()] == [ILL]


@pytest.mark.parametrize(
    "unprobed",
    [pool_spec(worker("a", is_probed=False)), pool_spec(worker("a"), health=HealthOptions(enabled=False))],
    ids=["worker", "pool"],
)
def test_health_of_worker_no_longer_probed_is_unknown(unprobed: PoolSpec):
    table = table_of(pool_spec(worker("a")))
    table.set_health({A: ILL})
    table.apply(snapshot(unprobed))
    assert [each.health for each in table.workers()] == [UNSEEN]


def test_health_of_removed_worker_is_forgotten():
    table = table_of(pool_spec(worker("a")))
    table.set_health({A: ILL})
    table.apply(snapshot())
    table.apply(snapshot(pool_spec(worker("a"))))
    assert [each.health for each in table.workers()] == [UNSEEN]


def test_forget_health_makes_every_worker_unknown_and_wakes_who_waits():
    spec, woken = pool_spec(worker("a", max_in_flight=1), worker("b"), queue=QueueOptions(size=1)), []
    table = table_of(spec)
    pool = table.pool(spec)
    table.set_health({WorkerId("b"): ILL})
    assert pool.admit(NEED, 0) is not None
    pool.join(lambda: woken.append("x"), 0).admit(NEED, 0)
    table.forget_health()
    assert woken == ["x"]
    assert [each.health for each in table.workers()] == [UNSEEN, UNSEEN]
