"""What always holds while calls come, wait, try again, end and leave in any order, and workers fall ill and recover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.health import Health, HealthView
from gateway.routing.lease import CallLease, WorkerLease
from gateway.routing.options import BreakerOptions, QueueOptions
from gateway.routing.queue import Ticket
from gateway.routing.requirement import Need, Priority, Profile, Requirement
from gateway.routing.rest import RestReason
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerId, WorkerState
from gateway.routing.worker import Worker
from tests.routing.pools import Recency, pool_of, worker

QUEUE_SIZE = 4
NO_CAP = 99
NEEDS = st.builds(
    Need,
    st.sampled_from([Requirement("chat", "m", is_streaming=is_streaming) for is_streaming in (False, True)]),
    team=st.integers(1, 2),
    priority=st.sampled_from(Priority),
    size=st.sampled_from([1, 1, 1, 2, 3]),
    routing_key=st.sampled_from([None, None, "patient"]),
)


class Patient(Recency):
    """Calls with a routing key rather wait for a full worker, while they are told to and not far back."""

    binds_late = True

    def __init__(self) -> None:
        self.is_on = False

    def would_wait(
        self, candidates: Sequence[Worker], full: Sequence[Worker], need: Need, now: float, rank: int
    ) -> bool:
        return self.is_on and need.routing_key is not None and rank < 2


class HostCell:
    """What other processes hold, as the test says; `rush` of it comes in the instant in which this one counts."""

    def __init__(self) -> None:
        self.own = self.others = self.rush = 0

    def add(self, calls: int, tokens: int) -> None:
        self.own += calls
        if calls > 0:
            self.others, self.rush = self.others + self.rush, 0

    def other_calls(self) -> int:
        return self.others

    def other_tokens(self) -> int:
        return 0


@dataclass(eq=False)
class Running:
    call: CallLease
    at: WorkerLease
    need: Need
    tried: set[WorkerId] = field(default_factory=set)


@dataclass(eq=False)
class Waiting:
    ticket: Ticket
    woken: list[bool]


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.luck = 0.999
        self.policy = Patient()
        self.cells: dict[str, HostCell] = {}
        self.pool = pool_of(
            worker("any", max_in_flight=2),
            worker("whole", max_in_flight=1, profiles=(Profile(streaming=False),)),
            worker("streamed", max_in_flight=2, profiles=(Profile(streaming=True),)),
            by=self.policy,
            random=lambda: self.luck,
            cell=lambda name: self.cells.setdefault(name, HostCell()),
            max_in_flight=4,  # below what the workers hold together, so that either may be what a call waits for
            queue=QueueOptions(size=QUEUE_SIZE),
            breaker=BreakerOptions(failure_threshold=2, timeout_s=5.0),
        )
        self.running: list[Running] = []
        self.waiting: list[Waiting] = []
        self.trials: dict[WorkerLease, float] = {}

    # ---- the rules written out once more, apart from the code under test

    def active(self) -> list[Worker]:
        return [each for each in self.pool.workers if each.spec.state is WorkerState.ACTIVE]

    def is_panic(self) -> bool:
        active = self.active()
        good = [w for w in active if w.health.state is not Health.UNHEALTHY and w.breaker.permits(self.now)]
        return len(active) > 1 and len(good) * 2 < len(active)

    def eligible(self, need: Need) -> list[Worker]:
        is_panic, is_sole = self.is_panic(), len(self.active()) == 1
        return [
            each
            for each in self.active()
            if each.health.state is not Health.UNHEALTHY
            and (not each.spec.profiles or each.spec.profiles[0].satisfies(need.requirement))
            and (each.breaker.permits(self.now) or is_sole or (is_panic and self.now >= each.refused_until))
        ]

    def is_full(self, each: Worker, need: Need) -> bool:
        cap = each.spec.max_in_flight or NO_CAP
        return each.load > 0 and each.load + need.size > cap

    def usable(self, eligible: list[Worker], need: Need) -> list[Worker]:
        free = [each for each in eligible if not self.is_full(each, need)]
        awake = [each for each in free if not each.rest.is_on(self.now)]
        return awake if awake or len(free) < len(eligible) else free

    def has_place(self, need: Need) -> bool:
        load = self.pool.in_flight + self.cells["pool"].others
        return load == 0 or load + need.size <= (self.pool.spec.max_in_flight or NO_CAP)

    def would_go(self, need: Need, rank: int) -> bool:
        eligible = self.eligible(need)
        is_any_full = any(self.is_full(each, need) for each in eligible)
        would_wait = self.policy.would_wait((), (), need, self.now, rank) and rank < self.pool.queue_size
        can_go = bool(self.usable(eligible, need)) and self.has_place(need)
        return not eligible or (can_go and not (is_any_full and would_wait))  # with nobody eligible it has to hear so

    def first_able(self) -> Ticket | None:
        return next((t for rank, t in enumerate(self.pool._queue) if self.would_go(t.need, rank)), None)

    def is_throttled(self) -> bool:
        active = self.active()
        return self.luck == 0.0 and len(active) == 1 and not active[0].breaker.permits(self.now)

    # ---- calls

    def enters(self, got: tuple[CallLease, WorkerLease], need: Need) -> None:
        self.begins(got[1], need)
        cap = self.pool.spec.max_in_flight or NO_CAP
        assert self.pool.in_flight + self.cells["pool"].others <= max(cap, need.size)
        self.running.append(Running(*got, need, {got[1].worker.spec.id}))

    def begins(self, lease: WorkerLease, need: Need) -> None:
        at = lease.worker
        assert at.load <= max(at.spec.max_in_flight or NO_CAP, need.size)
        assert lease.decision.chosen == at.spec.name
        if lease._trial:
            others = [since for each, since in self.trials.items() if each.worker is at]
            assert all(self.now >= since + 30 for since in others), "two trials at once"
            self.trials[lease] = self.now
        elif len(self.active()) > 1 and not self.was_panic:
            assert at.breaker.opened_until is None

    def refused(self, fault: Fault, need: Need) -> None:
        assert fault.kind is FaultKind.NO_WORKER
        assert not self.eligible(need) or self.is_throttled()

    @rule(needs=st.lists(NEEDS, min_size=1, max_size=4))
    def calls_come(self, needs: list[Need]) -> None:
        for need in needs:
            self.comes(need)

    def comes(self, need: Need) -> None:
        able, goes = self.first_able(), self.would_go(need, self.pool.waiting)
        is_rushed = any(cell.rush for cell in self.cells.values())
        self.was_panic = self.is_panic()
        try:
            got = self.pool.admit(need, self.now)
        except Fault as fault:
            self.refused(fault, need)
            return
        if got is not None:
            assert able is None, "overtook"
            self.enters(got, need)
            return
        assert able is not None or not goes or is_rushed
        self.joins(need)

    def joins(self, need: Need) -> None:
        batch = [ticket for ticket in self.pool._queue if ticket.need.priority is Priority.BATCH]
        is_full, woken = self.pool.waiting >= self.pool.queue_size, [False]
        last = batch[-1] if is_full and batch and need.priority is Priority.INTERACTIVE else None
        try:
            ticket = self.pool.join(need, lambda: woken.__setitem__(0, True), self.now)
        except Fault as fault:
            assert (fault.kind, last, is_full) == (FaultKind.OVERLOADED, None, True)  # noqa: PT017
            return
        assert last is not None or not is_full
        assert ticket.until == self.now + (1.0 if need.priority is Priority.INTERACTIVE else 30.0)
        for each in self.waiting:
            assert each.ticket.is_evicted <= (each.ticket is last or each.woken[0])
        self.waiting.append(Waiting(ticket, woken))
        self.asks(self.waiting[-1])

    def asks(self, waiting: Waiting, *, is_last: bool = False) -> None:
        waiting.woken[0] = False
        ticket, need = waiting.ticket, waiting.ticket.need
        able, eligible = self.first_able(), self.eligible(need)
        could = bool(self.usable(eligible, need)) and self.has_place(need)
        is_rushed = any(cell.rush for cell in self.cells.values())
        self.was_panic = self.is_panic()
        try:
            got = ticket.admit(self.now, is_last=is_last)
        except Fault as fault:
            self.waiting.remove(waiting)
            if ticket.is_evicted:
                assert fault.kind is FaultKind.OVERLOADED  # noqa: PT017
            else:
                self.refused(fault, need)
            return
        if got is not None:
            assert could
            assert is_last or able is ticket, "overtook"
            self.waiting.remove(waiting)
            self.enters(got, need)
        else:
            assert is_rushed or not could or (able is not ticket and not is_last)

    @precondition(lambda self: any(each.woken[0] for each in self.waiting))
    @rule(data=st.data())
    def woken_one_asks(self, data: st.DataObject) -> None:
        self.asks(data.draw(st.sampled_from([each for each in self.waiting if each.woken[0]])))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def wait_is_over(self, data: st.DataObject) -> None:
        waiting = data.draw(st.sampled_from(self.waiting))
        self.asks(waiting, is_last=True)
        waiting.ticket.leave()
        if waiting in self.waiting:
            self.waiting.remove(waiting)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        waiting = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(waiting)
        waiting.ticket.leave()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), signal=st.sampled_from([*Signal, Signal.FAILURE]), seconds=st.sampled_from([0.0, 1.0]))
    def worker_is_done(self, data: st.DataObject, signal: Signal, seconds: float) -> None:
        running = data.draw(st.sampled_from(self.running))
        self.now += seconds
        self.tell()
        self.trials.pop(running.at, None)
        running.at.finish(signal, self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def call_ends(self, data: st.DataObject) -> None:
        running = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.trials.pop(running.at, None)
        for lease in data.draw(st.permutations([running.at, running.call, running.at])):
            lease.release()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_free=st.booleans())
    def call_tries_another(self, data: st.DataObject, is_free: bool) -> None:
        running = data.draw(st.sampled_from(self.running))
        running.at.finish(Signal.FAILURE, self.now)
        self.trials.pop(running.at, None)
        left = [each for each in self.eligible(running.need) if each.spec.id not in running.tried]
        usable, self.was_panic = self.usable(left, running.need), self.is_panic()
        is_rushed = any(cell.rush for cell in self.cells.values())
        following = self.pool.choose(running.need, running.tried, self.now, is_free=is_free)
        running.at.release()
        if following is None:
            assert not is_free or not usable or is_rushed
            self.running.remove(running)
            running.call.release()
        else:
            assert following.worker in usable
            self.begins(following, running.need)
            running.tried.add(following.worker.spec.id)
            running.at = following

    # ---- what happens around them; each tells the pool, as its callers do

    def tell(self) -> None:
        self.pool.now = self.now
        self.pool.wake()

    @rule(seconds=st.sampled_from([0.5, 6.0, 6.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tell()

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        what, drawn = data.draw(st.sampled_from(self.happenings))
        what(self, *map(data.draw, drawn))

    def other_processes_take_and_give(self, name: str, others: int, rush: int) -> None:
        self.cells[name].others, self.cells[name].rush = others, rush
        self.tell()

    def patience_changes(self, is_on: bool) -> None:
        self.policy.is_on = is_on
        self.tell()

    def luck_changes(self, luck: float) -> None:
        self.luck = luck

    def probe_says(self, at: int, state: Health) -> None:
        self.pool.workers[at].health = HealthView(state)
        if state is Health.HEALTHY:
            self.pool.workers[at].breaker.invite(self.now)
        self.tell()

    def worker_asks_for_rest(self, at: int, hint_s: float) -> None:
        self.pool.workers[at].rest.begin(RestReason.RATE_LIMIT, self.now, hint_s)
        self.tell()

    def worker_refuses_connection(self, at: int) -> None:
        self.pool.workers[at].breaker.failed(self.now)
        self.pool.refused(self.pool.workers[at], self.now)
        self.tell()

    def operator_edits_worker(self, at: int, state: WorkerState, cap: int | None) -> None:
        target = self.pool.workers[at]
        target.spec = replace(target.spec, state=state, max_in_flight=cap)
        self.pool.now = self.now
        self.pool.update(self.pool.spec, self.pool.workers, self.policy)

    def operator_edits_pool(self, cap: int | None, size: int) -> None:
        spec = replace(self.pool.spec, max_in_flight=cap, queue=QueueOptions(size=size))
        self.pool.now = self.now
        self.pool.update(spec, self.pool.workers, self.policy)

    at = st.integers(0, 2)
    happenings = (
        (other_processes_take_and_give, (st.sampled_from(["any", "whole", "pool"]), at, st.integers(0, 1))),
        (patience_changes, (st.booleans(),)),
        (luck_changes, (st.sampled_from([0.0, 0.999]),)),
        (probe_says, (at, st.sampled_from([Health.HEALTHY, Health.HEALTHY, Health.UNHEALTHY]))),
        (worker_asks_for_rest, (at, st.sampled_from([1.0, 20.0]))),
        (worker_refuses_connection, (at,)),
        (
            operator_edits_worker,
            (at, st.sampled_from([*WorkerState, WorkerState.ACTIVE]), st.sampled_from([1, 2, None])),
        ),
        (operator_edits_pool, (st.sampled_from([2, 4, None]), st.sampled_from([2, QUEUE_SIZE]))),
    )

    # ---- what always holds

    @invariant()
    def counts_equal_leases(self) -> None:
        pool, cells = self.pool, self.cells
        assert pool.in_flight == cells["pool"].own == sum(running.need.size for running in self.running)
        assert pool.waiting == sum(not each.ticket.is_evicted for each in self.waiting)
        for each in pool.workers:
            held = sum(running.need.size for running in self.running if running.at.worker is each)
            assert each.in_flight == cells[each.spec.id].own == held
        assert pool.budget._running == sum(running.at._is_retry for running in self.running)

    @invariant()
    def no_wake_up_is_lost(self) -> None:
        woken = {each.ticket: each.woken[0] for each in self.waiting}
        able = self.first_able()
        assert able is None or woken[able]
        assert all(woken[ticket] for ticket in woken if ticket.is_evicted)

    def teardown(self) -> None:
        for waiting in self.waiting:
            waiting.ticket.leave()
        for running in self.running:
            running.at.release()
            running.call.release()
        self.running, self.waiting = [], []
        self.counts_equal_leases()
        assert len(self.pool._queue) == 0


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
