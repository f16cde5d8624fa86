from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.breaker import BreakerState
from gateway.routing.health import Health, HealthView
from gateway.routing.lease import CallLease, WorkerLease
from gateway.routing.options import BreakerOptions, QueueOptions
from gateway.routing.pool import SCAN, Pool
from gateway.routing.queue import Ticket
from gateway.routing.requirement import Need, Profile
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerState
from tests.routing.pools import NEED, STREAMED, pool_of, worker

ONLY_STREAMED = (Profile(streaming=True),)
QUEUE = QueueOptions(size=100)
FRAGILE = BreakerOptions(failure_threshold=1, timeout_s=30.0)


def admitted(pool: Pool, need: Need = NEED, now: float = 0.0) -> tuple[CallLease, WorkerLease]:
    got = pool.admit(need, now)
    assert got is not None
    return got


def chosen(pool: Pool, calls: int, need: Need = NEED) -> list[str]:
    return [admitted(pool, need)[1].worker.spec.name for _ in range(calls)]


def refusal(action: Callable[[], object]) -> tuple[FaultKind, str, float | None]:
    with pytest.raises(Fault) as refused:
        action()
    return refused.value.kind, refused.value.message, refused.value.retry_after_s


def break_worker(pool: Pool, at: int, now: float = 0.0) -> None:
    pool.workers[at].breaker.failed(now)


class Woken(list[str]):
    """Names of woken tickets, in order."""

    def join(self, pool: Pool, name: str, need: Need = NEED) -> Ticket:
        ticket = pool.join(need, lambda: self.append(name), 0)
        assert ticket.admit(0) is None
        return ticket


def test_admit_counts_call_at_pool_and_worker():
    pool = pool_of(worker("a"))
    call, at = admitted(pool)
    assert (pool.in_flight, pool.workers[0].in_flight) == (1, 1)
    at.release()
    call.release()
    assert (pool.in_flight, pool.workers[0].in_flight) == (0, 0)


def test_leases_released_twice_give_back_once():
    pool = pool_of(worker("a"))
    admitted(pool)
    call, at = admitted(pool)
    for _ in range(2):
        at.release()
        call.release()
    assert (pool.in_flight, pool.workers[0].in_flight) == (1, 1)


def test_admit_subsets_alternating_stays_even():
    pool = pool_of(worker("a"), worker("b", profiles=(Profile(streaming=False),)), worker("c"))
    assert [chosen(pool, 1, need)[0] for need in (NEED, STREAMED) * 3] == ["a", "c", "b", "a", "c", "a"]


def test_admit_skips_worker_at_its_cap():
    pool = pool_of(worker("a", max_in_flight=1), worker("b"))
    assert chosen(pool, 3) == ["a", "b", "b"]


def test_admit_every_worker_at_cap_waits():
    pool = pool_of(worker("a", max_in_flight=1))
    admitted(pool)
    assert pool.admit(NEED, 0) is None


def test_admit_pool_at_cap_waits():
    pool = pool_of(worker("a"), max_in_flight=2)
    chosen(pool, 2)
    assert pool.admit(NEED, 0) is None


@pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.DISABLED])
def test_admit_skips_worker_that_is_not_active(state: WorkerState):
    assert chosen(pool_of(worker("a", state=state), worker("b")), 2) == ["b", "b"]


def test_admit_skips_unhealthy_and_uses_unknown_worker():
    pool = pool_of(worker("a"), worker("b"))
    pool.workers[0].health = HealthView(Health.UNHEALTHY)
    assert chosen(pool, 2) == ["b", "b"]


def test_admit_pool_without_workers_says_so():
    kind, message, retry_after_s = refusal(lambda: pool_of().admit(NEED, 0))
    assert (kind, retry_after_s) == (FaultKind.NO_WORKER, 1)
    assert message == "No worker can take this call (the pool has no workers)."


def test_admit_nobody_eligible_says_why_in_counts_and_when_to_return():
    names = [worker(name) for name in "abc"]
    pool = pool_of(
        *names, worker("d", state=WorkerState.DRAINING), worker("e", profiles=ONLY_STREAMED), breaker=FRAGILE
    )
    pool.workers[0].health = HealthView(Health.UNHEALTHY, "connection refused by 10.0.0.1")
    for at, now in ((1, 0), (2, 5)):
        break_worker(pool, at, now)
        pool.refused(pool.workers[at], 9)
    counts = "5 workers: 1 unhealthy, 2 circuit open, 1 draining, 1 without a profile for this request"
    expected = (FaultKind.NO_WORKER, f"No worker can take this call ({counts}).", 20)
    assert refusal(lambda: pool.admit(NEED, 10)) == expected


def test_admit_half_open_worker_takes_one_trial_at_a_time():
    pool = pool_of(worker("a"), worker("b"), breaker=FRAGILE)
    break_worker(pool, 0)
    assert [admitted(pool, now=30)[1].worker.spec.name for _ in range(3)] == ["a", "b", "b"]


def test_lease_trial_released_unfinished_makes_room_for_another():
    pool = pool_of(worker("a"), worker("b"), breaker=FRAGILE)
    break_worker(pool, 0)
    admitted(pool, now=30)[1].release()
    assert pool.workers[0].breaker.permits(30)


def test_lease_finished_twice_counts_first_word_only():
    pool = pool_of(worker("a"))
    _, at = admitted(pool)
    at.finish(Signal.FAILURE, 1)
    at.finish(Signal.SUCCESS, 1)
    at.release()
    assert pool.workers[0].breaker.failures == 1


def test_sole_active_worker_with_open_breaker_is_used_and_counted():
    pool = pool_of(worker("a"), worker("b", state=WorkerState.DISABLED), breaker=FRAGILE, random=lambda: 0.99)
    for _ in range(3):
        _, at = admitted(pool)
        at.finish(Signal.FAILURE, 0)
    breaker = pool.workers[0].breaker
    assert (breaker.state(0), breaker.failures) == (BreakerState.OPEN, 3)


def test_sole_worker_recovering_closes_its_breaker():
    pool = pool_of(worker("a"), breaker=FRAGILE)
    break_worker(pool, 0)
    admitted(pool, now=30)[1].finish(Signal.SUCCESS, 31)
    assert pool.workers[0].breaker.state(31) is BreakerState.CLOSED


def test_choose_leaves_out_tried_workers_until_nobody_is_left():
    pool = pool_of(worker("a"), worker("b"))
    _, first = admitted(pool)
    second = pool.choose(NEED, {first.worker.spec.id}, 0)
    assert second is not None
    assert second.worker.spec.name == "b"
    assert pool.choose(NEED, {first.worker.spec.id, second.worker.spec.id}, 0) is None
    assert pool.in_flight == 1


def test_join_queue_off_refuses():
    pool = pool_of(worker("a", max_in_flight=1), queue=QueueOptions(size=0))
    admitted(pool)
    expected = (FaultKind.OVERLOADED, "Every worker of this model is busy and no more calls may wait.", 1)
    assert refusal(lambda: pool.join(NEED, lambda: None, 0)) == expected


def test_join_queue_one_short_of_full_accepts_and_full_refuses():
    pool = pool_of(worker("a", max_in_flight=1), queue=QueueOptions(size=2))
    admitted(pool)
    for name in "xy":
        Woken().join(pool, name)
    assert refusal(lambda: pool.join(NEED, lambda: None, 0))[0] is FaultKind.OVERLOADED
    assert pool.waiting == 2


def test_join_queue_full_predicts_retry_from_recent_calls():
    pool = pool_of(worker("a", max_in_flight=2), queue=QueueOptions(size=3))
    for _ in range(3):
        call, at = admitted(pool, now=10)
        at.finish(Signal.SUCCESS, 20)
        at.release()
        call.release()
    chosen(pool, 2)
    for name in "xyz":
        Woken().join(pool, name)
    assert refusal(lambda: pool.join(NEED, lambda: None, 0))[2] == 10 * 4 / 2


def test_release_wakes_first_waiting_and_it_goes():
    pool, woken = pool_of(worker("a", max_in_flight=1), queue=QUEUE), Woken()
    _, at = admitted(pool)
    first, _ = woken.join(pool, "x"), woken.join(pool, "y")
    at.release()
    assert woken == ["x"]
    assert first.admit(1) is not None
    assert (pool.waiting, woken) == (1, ["x"])


def test_call_release_at_pool_cap_wakes_first_waiting():
    pool, woken = pool_of(worker("a"), max_in_flight=1, queue=QUEUE), Woken()
    call, at = admitted(pool)
    woken.join(pool, "x")
    at.release()
    assert woken == []
    call.release()
    assert woken == ["x"]


def test_two_places_freed_are_passed_on_one_after_the_other():
    pool, woken = pool_of(worker("a", max_in_flight=2), queue=QUEUE), Woken()
    leases = [admitted(pool)[1] for _ in range(2)]
    first, second = woken.join(pool, "x"), woken.join(pool, "y")
    for lease in leases:
        lease.release()
    assert woken == ["x"]
    assert first.admit(1) is not None
    assert woken == ["x", "y"]
    assert second.admit(1) is not None


def test_woken_ticket_that_leaves_wakes_next():
    pool, woken = pool_of(worker("a", max_in_flight=1), queue=QUEUE), Woken()
    _, at = admitted(pool)
    first, _ = woken.join(pool, "x"), woken.join(pool, "y")
    at.release()
    first.leave()
    first.leave()
    assert (woken, pool.waiting) == (["x", "y"], 1)


def test_woken_ticket_whose_place_a_retry_took_is_woken_again():
    pool, woken = pool_of(worker("a", max_in_flight=1), queue=QUEUE), Woken()
    _, at = admitted(pool)
    first = woken.join(pool, "x")
    at.release()
    retry = pool.choose(NEED, (), 0)
    assert first.admit(1) is None
    assert retry is not None
    retry.release()
    assert woken == ["x", "x"]


def test_new_call_does_not_overtake_one_that_could_go():
    pool, woken = pool_of(worker("a", max_in_flight=1), queue=QUEUE), Woken()
    _, at = admitted(pool)
    woken.join(pool, "x")
    at.release()
    assert pool.admit(NEED, 1) is None


def test_ticket_behind_one_that_could_go_waits():
    pool, woken = pool_of(worker("a", max_in_flight=1), queue=QUEUE), Woken()
    _, at = admitted(pool)
    woken.join(pool, "x")
    second = woken.join(pool, "y")
    at.release()
    assert second.admit(1) is None


def test_ticket_that_cannot_go_holds_nobody_up():
    streamed = worker("s", max_in_flight=1, profiles=ONLY_STREAMED)
    pool, woken = (
        pool_of(streamed, worker("w", max_in_flight=1, profiles=(Profile(streaming=False),)), queue=QUEUE),
        Woken(),
    )
    admitted(pool, STREAMED)
    _, at = admitted(pool, NEED)
    woken.join(pool, "streamed", STREAMED)
    whole = woken.join(pool, "whole", NEED)
    at.release()
    assert woken == ["whole"]
    assert whole.admit(1) is not None


@pytest.mark.parametrize(("ahead", "goes"), [(SCAN, True), (SCAN + 1, False)])
def test_new_call_behind_those_that_cannot_go_is_looked_for_within_bound(ahead: int, goes: bool):
    pool = pool_of(
        worker("s", max_in_flight=1, profiles=ONLY_STREAMED),
        worker("w", profiles=(Profile(streaming=False),)),
        queue=QUEUE,
    )
    admitted(pool, STREAMED)
    for _ in range(ahead):
        Woken().join(pool, "s", STREAMED)
    assert (pool.admit(NEED, 0) is not None) is goes


def test_ticket_without_any_eligible_worker_left_hears_so_and_wakes_next():
    pool, woken = pool_of(worker("a", max_in_flight=1), queue=QUEUE), Woken()
    admitted(pool)
    first, _ = woken.join(pool, "x"), woken.join(pool, "y")
    pool.workers[0].health = HealthView(Health.UNHEALTHY)
    pool.wake()
    assert woken == ["x"]
    assert refusal(lambda: first.admit(1))[0] is FaultKind.NO_WORKER
    assert (woken, pool.waiting) == (["x", "y"], 1)


def test_breaker_half_open_by_time_is_noticed_with_next_call():
    pool, woken = pool_of(worker("a", max_in_flight=1), worker("b"), breaker=FRAGILE, queue=QUEUE), Woken()
    break_worker(pool, 1)
    admitted(pool)
    first = woken.join(pool, "x")
    assert pool.admit(NEED, 30) is None
    assert woken == ["x"]
    got = first.admit(30)
    assert got is not None
    assert got[1].worker.spec.name == "b"


def test_breaker_closing_wakes_those_it_lets_in():
    pool, woken = pool_of(worker("a", max_in_flight=1), worker("b"), breaker=FRAGILE, queue=QUEUE), Woken()
    break_worker(pool, 1)
    admitted(pool)
    _, trial = admitted(pool, now=30)
    ticket = pool.join(NEED, lambda: woken.append("x"), 30)
    assert ticket.admit(30) is None
    trial.finish(Signal.SUCCESS, 31)
    assert woken == ["x"]
    assert ticket.admit(31) is not None


def test_sole_worker_with_open_breaker_is_spared_by_chance_as_often_as_it_fails():
    luck = [0.83, 0.84]
    pool = pool_of(worker("a"), random=lambda: luck.pop(0))
    for _ in range(5):
        pool.workers[0].breaker.failed(0)
    message = "No worker can take this call (1 worker: 1 circuit open)."
    assert refusal(lambda: pool.admit(NEED, 0)) == (FaultKind.NO_WORKER, message, 1)  # below 5 / 6
    assert pool.admit(NEED, 0) is not None


def test_trial_that_leaves_less_than_half_of_the_workers_wakes_whom_the_panic_lets_in():
    taken, broken = (worker(name, max_in_flight=1, profiles=ONLY_STREAMED) for name in "st")
    pool = pool_of(taken, broken, worker("w", profiles=(Profile(streaming=False),)), breaker=FRAGILE, queue=QUEUE)
    break_worker(pool, 1, now=5)
    break_worker(pool, 2, now=0)
    admitted(pool, Need(STREAMED.requirement, target="s"), now=30)
    woken: list[str] = []
    waiting = pool.join(STREAMED, lambda: woken.append("x"), 30)
    assert waiting.admit(30) is None
    admitted(pool, NEED, now=30)
    assert woken == ["x"]
    assert waiting.admit(30) is not None
