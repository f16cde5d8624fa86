"""The live side of one model: who may take a call now, who is chosen, and where calls wait for a place.

Candidates sorts the workers. Nobody eligible: refused at once. Nobody ready, or the pool at its cap: wait. Chosen and
counted is one step, and nothing here awaits, so no lock is needed. Processes of one host share their counts: a place
that another process took in the same instant is given back and waited for.

A ticket that could not go now does not hold up those behind it that could, which is looked for among the first `SCAN`
only. A new call that would overtake such a ticket queues behind it.

Wake-ups: whenever something frees a place or changes who is eligible, the first ticket that could go is woken; one that
is woken and goes, cannot go or leaves wakes the next. So while a ticket could go, one is on its way. What happens by
time alone (a breaker half-open, a rest over) and in other processes is noticed with the next call, release or `wake`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.budget import RetryBudget
from gateway.routing.candidates import REFUSED_S, Candidates, due_trial, sort_out
from gateway.routing.decision import SHOWN, Decision, decision
from gateway.routing.health import Health
from gateway.routing.lease import CallLease, WorkerLease
from gateway.routing.policy import Policy, Terms
from gateway.routing.queue import FairQueue, Ticket
from gateway.routing.reasons import LONGEST_RETRY_AFTER_S, excluded, nobody
from gateway.routing.requirement import Need, Priority
from gateway.routing.retry import Signal
from gateway.routing.snapshot import PoolSpec, WorkerId, WorkerState
from gateway.routing.worker import ALONE, Cell, Worker

SCAN = 48  # tickets looked at: some 20 us when none of them can go
LATE_SCAN = 8  # of these, that rather wait for a full worker, which costs a decision each to find out
_TRIAL = "trial of a worker that failed"
_PLACES_UNKNOWN = 0  # a pool without caps never makes calls wait


class Pool:
    """One model's workers, places and queue. `update` gives it its specification.

    `random` gives numbers in [0, 1); it decides how often a sole worker with an open breaker is tried.
    """

    __slots__ = (
        "__weakref__",
        "_active",
        "_mean_s",
        "_names",
        "_queue",
        "_queue_size",
        "_random",
        "_turn",
        "budget",
        "cell",
        "in_flight",
        "now",
        "policy",
        "reads_facts",
        "spec",
        "workers",
    )

    def __init__(
        self,
        spec: PoolSpec,
        workers: Sequence[Worker],
        policy: Policy,
        random: Callable[[], float] = lambda: 0.5,
        cell: Cell = ALONE,
    ) -> None:
        self.in_flight = 0
        self.now = 0.0  # the latest time that anybody told
        self.cell = cell
        self.budget = RetryBudget(spec.retry)
        self._random = random
        self._queue = FairQueue()
        self._turn = 0
        self._mean_s = 0.0  # time a call holds a worker, the recent ones weighing more
        self.update(spec, workers, policy)

    def update(self, spec: PoolSpec, workers: Sequence[Worker], policy: Policy) -> None:
        """Take over a new specification; what runs and waits goes on."""
        self.spec = spec
        self.workers = tuple(workers)
        self._names = tuple(worker.spec.name for worker in workers)
        self.policy = policy
        self.budget.options = spec.retry
        profiles = [profile for worker in workers for profile in worker.spec.profiles]
        self.reads_facts = any(profile.reads_facts for profile in profiles)
        self._active = tuple(worker for worker in workers if worker.spec.state is WorkerState.ACTIVE)
        self._queue_size = spec.queue.size if spec.queue.size is not None else 2 * self._places()
        policy.keep(self.workers)
        self.wake()

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    @property
    def queue_size(self) -> int:
        """Calls that may wait."""
        return self._queue_size

    def admit(self, need: Need, now: float) -> tuple[CallLease, WorkerLease] | None:
        """Places in the pool and at a worker; None: the call has to wait. Raises Fault(NO_WORKER)."""
        self.now = now
        found = self._found(need, now)
        if not found.ready or not self._has_place(need) or (self._queue and self._must_queue()):
            return None
        if found.full and self._prefers_to_wait(found, need, now, len(self._queue)):
            return None
        got = self._enter(found, need, now)
        if got is not None and got[1].worker.breaker.opened_until is not None:
            self.wake()  # the worker takes no second trial: that may leave somebody with nobody, or begin a panic
        return got

    def choose(
        self, need: Need, tried: Collection[WorkerId], now: float, *, is_free: bool = False
    ) -> WorkerLease | None:
        """A worker for a further attempt of a call that holds a place; None: nobody is left, or the budget is spent.

        `is_free`: the attempt before cost nobody anything and needs no budget.
        """
        self.now = now
        if not is_free and not self.budget.permits(now, self._closed()):
            return None
        found = sort_out(self._active, need, now, tried)
        return self._take(found, need, now, tried, is_retry=True) if found.ready else None

    def join(self, need: Need, wake: Callable[[], None], now: float) -> Ticket:
        """A place in the queue; `wake` is called when asking is worth while. Raises Fault(OVERLOADED)."""
        self.now = now
        if len(self._queue) >= self._queue_size and not self._evict_for(need):
            raise self.overloaded("Every worker of this model is busy and no more calls may wait.")
        options = self.spec.queue
        wait_s = options.batch_timeout_s if need.priority is Priority.BATCH else options.timeout_s
        ticket = Ticket(self, need, wake, now + wait_s)
        self._queue.add(ticket)
        return ticket

    def overloaded(self, message: str) -> Fault:
        """The refusal of a call that cannot wait, or not any longer, with the time until the queue should be empty."""
        predicted_s = self._mean_s * (len(self._queue) + 1) / max(1, self.in_flight)
        retry_after_s = min(max(1.0, predicted_s), LONGEST_RETRY_AFTER_S)
        return Fault(FaultKind.OVERLOADED, message, retry_after_s=retry_after_s)

    def wake(self) -> None:
        """Something changed: wake the first ticket that could go."""
        if self._queue:
            self._wake(self._first_able())

    def is_resting(self, now: float) -> bool:
        """Whether nobody here should be asked while another pool could be."""
        return not any(
            worker.health.state is not Health.UNHEALTHY and worker.breaker.permits(now) and not worker.rest.is_on(now)
            for worker in self._active
        )

    def explain(self, need: Need, now: float, tried: Collection[WorkerId] = ()) -> Decision:
        """Where a call would go now, and why; changes nothing. `chosen` is empty when it could not go."""
        found = sort_out(self._active, need, now, tried)
        if not found.ready:
            return self._decision(found, "", (), need, now, tried)
        trial = due_trial(found.ready, now)
        worker, terms = self.policy.choose(found.ready, need, now)
        if trial is None:
            return self._decision(found, worker.spec.name, terms, need, now, tried)
        return self._decision(found, trial.spec.name, terms, need, now, tried, _TRIAL)

    # ---- the queue

    def _admit_ticket(self, ticket: Ticket, now: float, is_last: bool) -> tuple[CallLease, WorkerLease] | None:
        self.now = now
        ticket.is_woken = False
        if ticket.is_evicted:
            raise self.overloaded("Calls of a higher priority took this one's place in the queue.")
        need = ticket.need
        try:
            found = self._found(need, now)
        except Fault:
            self._leave(ticket)
            raise
        got = None
        if found.ready and self._has_place(need) and (is_last or self._first_able() is ticket):
            got = self._enter(found, need, now)
        if got is not None:
            self._queue.remove(ticket, is_served=True)
        self.wake()
        return got

    def _leave(self, ticket: Ticket) -> None:
        if ticket in self._queue:
            self._queue.remove(ticket, is_served=False)
            self.wake()

    def _evict_for(self, need: Need) -> bool:
        """Make room for a call that goes before all batch calls."""
        if need.priority is not Priority.INTERACTIVE or not self._queue_size:
            return False
        last = self._queue.last_of(Priority.BATCH)
        if last is None:
            return False
        self._queue.remove(last, is_served=False)
        last.is_evicted = True
        last.wake()
        return True

    def _must_queue(self) -> bool:
        """Whether a new call would overtake somebody; wakes whom it would."""
        able = self._first_able()
        self._wake(able)
        return able is not None or len(self._queue) > SCAN

    def _wake(self, able: Ticket | None) -> None:
        if able is not None and not able.is_woken:
            able.is_woken = True
            able.wake()

    def _first_able(self) -> Ticket | None:
        """The first ticket that would not have to wait: it could go, or nobody is eligible and it should hear so."""
        binds_late = self.policy.binds_late
        late = 0
        waiting: set[object] = set()
        for rank, ticket in enumerate(islice(self._queue, SCAN)):
            need = ticket.need
            kind = (need.requirement, need.target, need.size)
            if kind in waiting:
                continue
            found = sort_out(self._active, need, self.now)
            if not found.ready and not found.full:
                return ticket
            if found.ready and self._has_place(need):
                if not (binds_late and found.full and self._prefers_to_wait(found, need, self.now, rank)):
                    return ticket
                late += 1
                if late == LATE_SCAN:
                    return None
            else:
                waiting.add(kind)
        return None

    def _prefers_to_wait(self, found: Candidates, need: Need, now: float, rank: int) -> bool:
        policy = self.policy
        return (
            policy.binds_late
            and rank < self._queue_size
            and policy.would_wait(found.ready, found.full, need, now, rank)
        )

    # ---- places

    def _places(self) -> int:
        """What the pool's caps let it hold at once; 0: it has none."""
        caps = [worker.spec.max_in_flight for worker in self._active]
        together = sum(cap for cap in caps if cap is not None) if None not in caps else None
        return min((cap for cap in (together, self.spec.max_in_flight) if cap is not None), default=_PLACES_UNKNOWN)

    def _has_place(self, need: Need) -> bool:
        cap = self.spec.max_in_flight
        return cap is None or self._load() + need.size <= max(cap, need.size)

    def _load(self) -> int:
        return self.in_flight if self.cell is ALONE else self.in_flight + self.cell.other_calls()

    def _found(self, need: Need, now: float) -> Candidates:
        found = sort_out(self._active, need, now)
        if (not found.ready and not found.full) or (len(self._active) == 1 and self._is_throttled(now)):
            raise nobody(self.workers, need, now)
        return found

    def _is_throttled(self, now: float) -> bool:
        """The sole worker never rests fully: the more of its calls fail, the fewer it gets (SRE book, chapter 21)."""
        breaker = self._active[0].breaker
        if breaker.opened_until is None or breaker.permits(now):
            return False
        good, bad = breaker.answers.totals(now)
        return self._random() < max(0.0, (bad - good) / (good + bad + 1))

    def _enter(self, found: Candidates, need: Need, now: float) -> tuple[CallLease, WorkerLease] | None:
        lease = self._take(found, need, now, (), is_retry=False)  # first: a policy that raises leaves nothing counted
        if lease is None:
            return None
        self.in_flight += need.size
        self.cell.add(need.size, 0)
        cap = self.spec.max_in_flight
        if cap is not None and self.cell is not ALONE and self._load() > max(cap, need.size):
            CallLease(self, need.size).release()
            lease.release()
            return None
        self.budget.called(now)
        return CallLease(self, need.size), lease

    def _take(
        self, found: Candidates, need: Need, now: float, tried: Collection[WorkerId], *, is_retry: bool
    ) -> WorkerLease | None:
        """Choose and count; None when another process was faster."""
        ready = found.ready
        terms: Sequence[Terms] = ()
        trial = None if is_retry else due_trial(ready, now)
        if len(ready) == 1:
            worker = ready[0]
        elif trial is not None:  # no policy would ask a worker of which it has heard only failures
            worker = trial
        else:
            worker, terms = self.policy.choose(ready, need, now)
        size = need.size
        worker.in_flight += size
        if worker.cell is not ALONE:
            worker.cell.add(size, 0)
            cap = worker.spec.max_in_flight
            if cap is not None and worker.load > max(cap, size):
                worker.in_flight -= size
                worker.cell.add(-size, 0)
                return None
        self._turn += 1
        worker.turn = self._turn
        for each in self._active:
            if each.breaker.slow_since is not None:
                each.counts_in_ramp(each is worker, len(self._active))
        note = _TRIAL if worker is trial else ""
        why = self._decision(found, worker.spec.name, terms, need, now, tried, note)
        lease = WorkerLease(self, worker, size, now, is_retry, why)
        if is_retry:
            self.budget.began(now)
        try:
            if len(self.workers) > 1:  # else there is nothing to remember or to learn for
                lease.track = self.policy.taken(worker, need, now)
        except BaseException:
            lease.release()
            raise
        return lease

    def _closed(self) -> list[WorkerId]:
        return [worker.spec.id for worker in self._active if worker.breaker.opened_until is None]

    def _served(self, worker: Worker, signal: Signal, now: float, duration_s: float) -> None:
        self.now = now
        self.budget.attempted(worker.spec.id, signal, now)
        self._mean_s += (duration_s - self._mean_s) * 0.1 if self._mean_s else duration_s
        self.wake()

    def refused(self, worker: Worker, now: float) -> None:
        """A connection to the worker was refused."""
        worker.refused_until = now + REFUSED_S

    # ---- why

    def _decision(
        self,
        found: Candidates,
        chosen: str,
        terms: Sequence[Terms],
        need: Need,
        now: float,
        tried: Collection[WorkerId],
        note: str = "",
    ) -> Decision:
        note = note or ("panic" if found.is_panic else "")
        if len(found.ready) == len(self._names) <= SHOWN:  # nearly always: nobody was left out
            return Decision(
                self.spec.policy.name, chosen, self._names, self.policy.term_names, tuple(terms), (), 0, note
            )
        names = [worker.spec.name for worker in found.ready]
        others = excluded(self.workers, found, need, now, tried, is_sole=len(self._active) == 1)
        return decision(self.spec.policy.name, chosen, names, self.policy.term_names, terms, others, note)
