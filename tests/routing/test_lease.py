"""What a call holds is given back once, and what a policy hears of it comes in order."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.policies.round_robin import RoundRobin
from gateway.routing.lease import CallLease, WorkerLease
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need
from gateway.routing.rest import RestReason
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerId
from gateway.routing.worker import ALONE, Worker
from tests.routing.pools import NEED, Shared, SharedCell, pool_of, worker


class Watching(RoundRobin):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def keep(self, workers: Sequence[Worker]) -> None:
        self.heard.append([each.spec.name for each in workers])

    def taken(self, worker: Worker, need: Need, now: float) -> Watching:
        self.heard.append(("taken", worker.spec.name, worker.in_flight))
        return self

    def answered(self, now: float) -> None:
        self.heard.append("answered")

    def progressed(self, tokens: int, now: float) -> None:
        self.heard.append(tokens)

    def ended(self, signal: Signal, tokens: int, now: float) -> None:
        self.heard.append((signal, tokens))


def admitted(pool: Pool, need: Need = NEED) -> tuple[CallLease, WorkerLease]:
    got = pool.admit(need, 0)
    assert got is not None
    return got


def test_track_hears_of_an_attempt_in_order_and_of_its_end_once():
    policy = Watching()
    _, lease = admitted(pool_of(worker("a"), worker("b"), by=policy))
    lease.answered(1)
    lease.progressed(3, 2)
    lease.finish(Signal.SUCCESS, 3)
    lease.finish(Signal.FAILURE, 3)
    lease.release()
    assert policy.heard == [["a", "b"], ("taken", "a", 1), "answered", 3, (Signal.SUCCESS, 3)]


def test_track_of_a_lease_that_nobody_finished_hears_of_a_neutral_end():
    policy = Watching()
    _, lease = admitted(pool_of(worker("a"), worker("b"), by=policy))
    lease.release()
    lease.release()
    assert policy.heard[-1] == (Signal.NEUTRAL, 0)
    assert len(policy.heard) == 3


def test_leases_of_a_batch_take_and_give_back_its_size():
    pool = pool_of(worker("a"))
    call, lease = admitted(pool, Need(NEED.requirement, size=5))
    assert (pool.in_flight, pool.workers[0].in_flight) == (5, 5)
    lease.release()
    call.release()
    assert (pool.in_flight, pool.workers[0].in_flight) == (0, 0)


def test_retry_is_a_place_in_the_budget_until_it_is_released():
    pool = pool_of(worker("a"), worker("b"), worker("c"))
    admitted(pool)
    retry = pool.choose(NEED, {WorkerId("a")}, 0)
    assert retry is not None
    assert pool.budget._running == 1
    retry.release()
    retry.release()
    assert pool.budget._running == 0


def test_success_ends_a_row_of_refusals_and_not_the_rest():
    pool = pool_of(worker("a"))
    rest = pool.workers[0].rest
    rest.begin(RestReason.RATE_LIMIT, 0)
    admitted(pool)[1].finish(Signal.SUCCESS, 1)
    assert (rest.in_a_row, rest.is_on(1)) == (0, True)


def test_two_processes_keep_caps_of_worker_and_pool_together():
    host = Shared()
    spec = worker("a", max_in_flight=3)
    one, other = (pool_of(spec, worker("b"), max_in_flight=5, cell=host.cells_of(row)) for row in (1, 2))
    got = [pool.admit(NEED, 0) for pool in (one, other, one, other, one, other, one)]
    leases = [each for each in got if each is not None]
    assert len(leases) == 5
    assert one.workers[0].load <= 3
    for call, lease in leases:
        lease.release()
        call.release()
    assert [host.calls(name) for name in ("a", "b", "pool")] == [0, 0, 0]


def test_place_that_another_process_took_in_the_same_instant_is_given_back():
    taken_by_others = [0]

    class Racing(SharedCell):
        def other_calls(self) -> int:
            return taken_by_others[0]

        def add(self, calls: int, tokens: int) -> None:
            taken_by_others[0] = 1  # between the look and the count
            super().add(calls, tokens)

    pool = pool_of(worker("a", max_in_flight=1), cell=lambda name: Racing(Shared(), name, 1) if name == "a" else ALONE)
    assert pool.admit(NEED, 0) is None
    assert (pool.in_flight, pool.workers[0].in_flight) == (0, 0)
