"""The live side of one model: who may take a call now, who is chosen, and where calls wait for a place.

A worker is *eligible* when it is active, not known to be unhealthy, its breaker permits and one of its profiles fits;
it is a *candidate* when it also is below its own cap. Nobody eligible: refused at once. Nobody a candidate, or the pool
at its cap: wait. Chosen and counted is one step, and nothing here awaits, so no lock is needed.

The queue is first come, first served. A ticket that could not go now does not hold up those behind it that could, which
is looked for among the first `SCAN` only. A new call is treated like a ticket at the very end.

Wake-ups: whenever something frees a place or changes who is eligible, the first ticket that could go is woken; one that
is woken and goes, cannot go or leaves wakes the next. So while a ticket could go, one is on its way. Two things happen
by time alone and are noticed with the next call or release: a breaker becoming half-open, a lost trial.

The sole active worker of a pool is used even when its breaker is open: there is nothing better to do with the call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Protocol

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.breaker import Breaker
from gateway.routing.health import UNSEEN, Health
from gateway.routing.requirement import Requirement
from gateway.routing.retry import Signal
from gateway.routing.snapshot import PoolSpec, WorkerId, WorkerSpec, WorkerState

SCAN = 48  # tickets looked at: some 20 us when none of them can go
_LONGEST_RETRY_AFTER_S = 60.0  # a longer guess from a few calls would be worth nothing, and SDKs would not wait for it


class Policy(Protocol):
    """A balancing rule."""

    def choose(self, candidates: Sequence[Worker], need: Requirement) -> Worker:
        """One of the candidates, which are at least one and in the pool's order. Changes nothing about them."""


class Worker:
    """The live state of one worker. `turn` is its pool's count of choices when it last was chosen, 0 never."""

    __slots__ = ("__weakref__", "breaker", "health", "in_flight", "spec", "turn")

    def __init__(self, spec: WorkerSpec, breaker: Breaker) -> None:
        self.spec = spec
        self.breaker = breaker
        self.health = UNSEEN
        self.in_flight = self.turn = 0


class WorkerLease:
    """One call's place at one worker."""

    __slots__ = ("_breaker", "_is_finished", "_is_released", "_pool", "_since_s", "_trial", "worker")

    def __init__(self, pool: Pool, worker: Worker, now: float) -> None:
        self.worker = worker
        self._pool = pool
        self._breaker = worker.breaker  # an edit of the worker's URL gives it a new one
        self._trial = worker.breaker.begin(now)
        self._since_s = now
        self._is_finished = self._is_released = False

    def finish(self, signal: Signal, now: float) -> None:
        """Tell the breaker how it went; only the first word counts. The place is kept until `release`."""
        if self._is_finished:
            return
        self._is_finished = True
        if signal is Signal.SUCCESS:
            self._breaker.succeeded(now, self._trial)
        elif signal is Signal.FAILURE:
            self._breaker.failed(now)
        else:
            self._breaker.neutral(self._trial)
        self._pool._served(now, now - self._since_s)

    def release(self) -> None:
        """Give the place back, once; a call that nobody told anything of was neutral."""
        if self._is_released:
            return
        self._is_released = True
        if not self._is_finished:
            self._is_finished = True
            self._breaker.neutral(self._trial)
        self.worker.in_flight -= 1
        self._pool.wake()


class CallLease:
    """One call's place in the pool, whatever number of workers it tries."""

    __slots__ = ("_is_released", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._is_released = False

    def release(self) -> None:
        """Give the place back, once."""
        if not self._is_released:
            self._is_released = True
            self._pool.in_flight -= 1
            self._pool.wake()


class Ticket:
    """A place in the queue. Its holder asks (`admit`) at once and after each wake, and leaves at the end."""

    __slots__ = ("_pool", "is_woken", "need", "wake")

    def __init__(self, pool: Pool, wake: Callable[[], None]) -> None:
        self._pool = pool
        self.wake = wake
        self.need: Requirement | None = None  # until it first asked
        self.is_woken = False

    def admit(self, need: Requirement, now: float) -> tuple[CallLease, WorkerLease] | None:
        """The leases if it is this ticket's turn, which ends it; else None. Raises Fault(NO_WORKER), which ends it."""
        return self._pool._admit_ticket(self, need, now)

    def leave(self) -> None:
        """Give the place in the queue up, if it is still held."""
        self._pool._leave(self)


class Pool:
    """One model's workers, places and queue. `update` gives it its specification."""

    __slots__ = (
        "__weakref__",
        "_active",
        "_has_sole_worker",
        "_mean_s",
        "_now",
        "_tickets",
        "_turn",
        "in_flight",
        "policy",
        "spec",
        "workers",
    )

    def __init__(self, spec: PoolSpec, workers: Sequence[Worker], policy: Policy) -> None:
        self.in_flight = 0
        self._tickets: OrderedDict[Ticket, None] = OrderedDict()  # ordered, and left from anywhere in constant time
        self._turn = 0
        self._now = 0.0  # the latest time that anybody told
        self._mean_s = 0.0  # time a call holds a worker, the recent ones weighing more
        self.update(spec, workers, policy)

    def update(self, spec: PoolSpec, workers: Sequence[Worker], policy: Policy) -> None:
        """Take over a new specification; what runs and waits goes on."""
        self.spec = spec
        self.workers = tuple(workers)
        self.policy = policy
        self._active = tuple(worker for worker in workers if worker.spec.state is WorkerState.ACTIVE)
        self._has_sole_worker = len(self._active) == 1
        self.wake()

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._tickets)

    def admit(self, need: Requirement, now: float) -> tuple[CallLease, WorkerLease] | None:
        """A place in the pool and at a worker; None: the call has to wait. Raises Fault(NO_WORKER)."""
        self._now = now
        candidates = self._candidates(need, now)
        if candidates is None:
            raise self._no_worker(need, now)
        if not candidates or not self._has_place() or (self._tickets and self._must_queue()):
            return None
        return self._enter(candidates, need, now)

    def choose(self, need: Requirement, tried: Collection[WorkerId], now: float) -> WorkerLease | None:
        """A worker for a further attempt of a call that holds a place; None: nobody is left."""
        self._now = now
        candidates = self._candidates(need, now, tried)
        return self._take(candidates, need, now) if candidates else None

    def join(self, wake: Callable[[], None], now: float) -> Ticket:
        """The last place in the queue; `wake` is called when asking is worth while. Raises Fault(OVERLOADED)."""
        self._now = now
        waiting = len(self._tickets)
        if waiting >= self.spec.queue.size:
            predicted_s = self._mean_s * (waiting + 1) / max(1, self.in_flight)
            raise Fault(
                FaultKind.OVERLOADED,
                "Every worker of this model is busy and no more calls may wait.",
                retry_after_s=min(max(1.0, predicted_s), _LONGEST_RETRY_AFTER_S),
            )
        ticket = Ticket(self, wake)
        self._tickets[ticket] = None
        return ticket

    def wake(self) -> None:
        """Something changed: wake the first ticket that could go."""
        if self._tickets and (ticket := self._first_able()) is not None and not ticket.is_woken:
            ticket.is_woken = True
            ticket.wake()

    def _admit_ticket(self, ticket: Ticket, need: Requirement, now: float) -> tuple[CallLease, WorkerLease] | None:
        self._now = now
        ticket.need, ticket.is_woken = need, False
        candidates = self._candidates(need, now)
        if candidates is None:
            self._leave(ticket)
            raise self._no_worker(need, now)
        got = None
        if candidates and self._has_place() and self._first_able() is ticket:
            del self._tickets[ticket]
            got = self._enter(candidates, need, now)
        self.wake()
        return got

    def _leave(self, ticket: Ticket) -> None:
        if ticket in self._tickets:
            del self._tickets[ticket]
            self.wake()

    def _must_queue(self) -> bool:
        """Whether a new call would overtake somebody; wakes whom it would."""
        self.wake()
        return len(self._tickets) > SCAN or self._first_able() is not None

    def _first_able(self) -> Ticket | None:
        """The first ticket that would not have to wait: it could go, or nobody is eligible and it should hear so."""
        has_place = self._has_place()
        waiting_needs: set[Requirement] = set()
        for ticket in islice(self._tickets, SCAN):
            need = ticket.need
            if need is None:
                return ticket
            if need not in waiting_needs:
                candidates = self._candidates(need, self._now)
                if candidates is None or (candidates and has_place):
                    return ticket
                waiting_needs.add(need)
        return None

    def _has_place(self) -> bool:
        return self.spec.max_in_flight is None or self.in_flight < self.spec.max_in_flight

    def _candidates(self, need: Requirement, now: float, tried: Collection[WorkerId] = ()) -> list[Worker] | None:
        """The candidates in the pool's order; [] when all eligible are at their caps, None when nobody is eligible."""
        candidates = []
        is_eligible = False
        for worker in self._active:
            spec = worker.spec
            if (
                worker.health.state is Health.UNHEALTHY
                or not (worker.breaker.opened_until is None or self._has_sole_worker or worker.breaker.permits(now))
                or (spec.profiles and not any(profile.satisfies(need) for profile in spec.profiles))
                or (tried and spec.id in tried)
            ):
                continue
            is_eligible = True
            if spec.max_in_flight is None or worker.in_flight < spec.max_in_flight:
                candidates.append(worker)
        return candidates if is_eligible else None

    def _enter(self, candidates: list[Worker], need: Requirement, now: float) -> tuple[CallLease, WorkerLease]:
        lease = self._take(candidates, need, now)  # first: a policy that raises leaves nothing counted
        self.in_flight += 1
        return CallLease(self), lease

    def _take(self, candidates: list[Worker], need: Requirement, now: float) -> WorkerLease:
        worker = candidates[0] if len(candidates) == 1 else self.policy.choose(candidates, need)
        self._turn += 1
        worker.turn = self._turn
        worker.in_flight += 1
        return WorkerLease(self, worker, now)

    def _served(self, now: float, duration_s: float) -> None:
        self._now = now
        self._mean_s += (duration_s - self._mean_s) * 0.1 if self._mean_s else duration_s
        self.wake()

    def _no_worker(self, need: Requirement, now: float) -> Fault:
        """Why nobody is eligible, in counts."""
        reasons: Counter[str] = Counter()
        wait_s = []
        for worker in self.workers:
            if worker.spec.state is not WorkerState.ACTIVE:
                reasons[worker.spec.state.value] += 1
            elif worker.health.state is Health.UNHEALTHY:
                reasons["unhealthy"] += 1
            elif not self._has_sole_worker and not worker.breaker.permits(now):
                reasons["circuit open"] += 1
                wait_s.append(worker.breaker.wait_s(now))
            else:
                reasons["without a profile for this request"] += 1
        total = len(self.workers)
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        message = f"{total} worker{'' if total == 1 else 's'}: {counts}" if total else "the pool has no workers"
        retry_after_s = max(1.0, min(wait_s, default=1.0))
        return Fault(FaultKind.NO_WORKER, f"No worker can take this call ({message}).", retry_after_s=retry_after_s)
