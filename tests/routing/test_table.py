from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from gateway.policies.registry import POLICIES
from gateway.routing.health import UNSEEN, Health, HealthView
from gateway.routing.options import BreakerOptions, HealthOptions, QueueOptions
from gateway.routing.references import account_pool
from gateway.routing.rest import RestReason
from gateway.routing.retry import Signal
from gateway.routing.snapshot import AccountSpec, PolicySpec, PoolSpec, Snapshot, WorkerId, WorkerState
from gateway.routing.table import Table
from gateway.routing.worker import LoadReport
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
    pool.join(NEED, lambda: woken.append("x"), 0).admit(0)
    table.apply(snapshot(replace(spec, max_in_flight=2)))
    assert woken == ["x"]


def test_set_health_reaches_named_workers_only():
    table = table_of(pool_spec(worker("a"), worker("b")))
    table.set_health({A: ILL}, 0)
    assert [each.health for each in table.workers()] == [ILL, UNSEEN]


def test_set_health_before_worker_is_configured_is_remembered():
    table = table_of()
    table.set_health({A: ILL}, 0)
    table.apply(snapshot(pool_spec(worker("a"))))
    assert [each.health for each in table.workers()] == [ILL]


@pytest.mark.parametrize(
    "unprobed",
    [pool_spec(worker("a", is_probed=False)), pool_spec(worker("a"), health=HealthOptions(enabled=False))],
    ids=["worker", "pool"],
)
def test_health_of_worker_no_longer_probed_is_unknown(unprobed: PoolSpec):
    table = table_of(pool_spec(worker("a")))
    table.set_health({A: ILL}, 0)
    table.apply(snapshot(unprobed))
    assert [each.health for each in table.workers()] == [UNSEEN]


def test_health_of_removed_worker_is_forgotten():
    table = table_of(pool_spec(worker("a")))
    table.set_health({A: ILL}, 0)
    table.apply(snapshot())
    table.apply(snapshot(pool_spec(worker("a"))))
    assert [each.health for each in table.workers()] == [UNSEEN]


def test_forget_health_makes_every_worker_unknown_and_wakes_who_waits():
    spec, woken = pool_spec(worker("a", max_in_flight=1), worker("b"), queue=QueueOptions(size=1)), []
    table = table_of(spec)
    pool = table.pool(spec)
    table.set_health({WorkerId("b"): ILL}, 0)
    assert pool.admit(NEED, 0) is not None
    pool.join(NEED, lambda: woken.append("x"), 0).admit(0)
    table.forget_health()
    assert woken == ["x"]
    assert [each.health for each in table.workers()] == [UNSEEN, UNSEEN]


def test_set_health_healthy_again_brings_the_next_trial_forward():
    spec = pool_spec(worker("a"), breaker=BreakerOptions(failure_threshold=1, timeout_s=60.0))
    table = table_of(spec)
    breaker = next(iter(table.workers())).breaker
    breaker.failed(0)
    table.set_health({A: ILL}, 1)
    assert not breaker.permits(2)
    table.set_health({A: HealthView(Health.HEALTHY)}, 3)
    assert breaker.permits(3)


def test_set_rest_of_another_process_is_never_shorter_than_our_own():
    table = table_of(pool_spec(worker("a")))
    table.set_rest(A, RestReason.RATE_LIMIT, 10, 100)
    table.set_rest(A, RestReason.QUOTA, 5, 100)
    table.set_rest(WorkerId("stranger"), RestReason.QUOTA, 5, 100)
    (live,) = table.workers()
    assert (live.rest.until, live.rest.reason) == (110, RestReason.RATE_LIMIT)


def test_set_loads_reaches_workers_that_there_are():
    table = table_of(pool_spec(worker("a")))
    report = LoadReport(1.0, running=3)
    table.set_loads({A: report, WorkerId("stranger"): report})
    assert [each.report for each in table.workers()] == [report]


def test_wake_waiting_finds_what_time_changed():
    spec = pool_spec(
        worker("a", max_in_flight=1), worker("b"), breaker=BreakerOptions(1, timeout_s=5.0), queue=QueueOptions(size=9)
    )
    table, woken = table_of(spec), []
    pool = table.pool(spec)
    next(each for each in table.workers() if each.spec.name == "b").breaker.failed(0)
    pool.admit(NEED, 0)
    pool.join(NEED, lambda: woken.append("x"), 0).admit(0)
    table.wake_waiting(4)
    assert woken == []
    table.wake_waiting(5)
    assert woken == ["x"]


def test_account_models_are_remembered_between_calls_within_a_bound():
    table = table_of()
    account = AccountSpec(1, "acme", "openai", "https://acme.example/v1")
    first = account_pool(account, "m0")
    next(iter(table.pool(first).workers)).breaker.failed(0)
    gc.collect()
    assert table.pool(first).workers[0].breaker.failures == 1
    for number in range(1, 1100):
        table.pool(account_pool(account, f"m{number}"))
    gc.collect()
    assert table.pool(first).workers[0].breaker.failures == 0


def test_draft_has_live_state_and_reaches_no_call():
    spec = pool_spec(worker("a"), worker("b"))
    table = table_of(spec)
    got = table.pool(spec).admit(NEED, 0)
    assert got is not None
    draft = table.draft(replace(spec, workers=(worker("a"), replace(worker("b"), url="http://elsewhere:1"))))
    assert [each.in_flight for each in draft.workers] == [1, 0]
    draft.admit(NEED, 0)
    assert [each.in_flight for each in table.workers()] == [1, 0]


def test_good_probe_wakes_who_waits_for_the_worker_whose_breaker_it_brings_forward():
    spec = pool_spec(worker("a", max_in_flight=1), worker("b"), queue=QueueOptions(size=1), breaker=BreakerOptions(1))
    table, woken = table_of(spec), []
    pool = table.pool(spec)
    pool.workers[1].breaker.failed(10)
    table.set_health({WorkerId("b"): ILL}, 10)
    pool.admit(NEED, 10)
    pool.join(NEED, lambda: woken.append("x"), 10).admit(10)
    table.set_health({WorkerId("b"): HealthView(Health.HEALTHY)}, 10.5)
    assert (woken, pool.workers[1].breaker.opened_until) == (["x"], 10.5)


def test_account_that_was_edited_is_called_as_it_is_now():
    table = table_of()
    account = AccountSpec(1, "acme", "openai", "https://acme.example/v1", "old")
    before = table.pool(account_pool(account, "m"))
    before.workers[0].breaker.failed(0)
    edited = account_pool(replace(account, credential="new"), "m")
    after = table.pool(edited)
    assert (after is before, after.spec, after.workers[0].spec.credential) == (True, edited, "new")
    assert after.workers[0].breaker.failures == 1
