"""What always holds while calls come, wait, try again, end and leave in any order, and workers fall ill and recover."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.health import Health, HealthView
from gateway.routing.options import BreakerOptions, QueueOptions
from gateway.routing.pool import CallLease, Ticket, WorkerLease
from gateway.routing.requirement import Profile, Requirement
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerId, WorkerState
from tests.routing.pools import pool_of, worker

WHOLE = Requirement("chat", "m", is_streaming=False)
STREAMED = Requirement("chat", "m", is_streaming=True)
POOL_CAP = 3  # below what the workers hold together, so that either may be what a call waits for
QUEUE_SIZE = 3


@dataclass(eq=False)
class Running:
    call: CallLease
    at: WorkerLease
    need: Requirement
    tried: set[WorkerId] = field(default_factory=set)


@dataclass(eq=False)
class Waiting:
    need: Requirement
    ticket: Ticket | None = None
    is_woken: bool = False


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pool = pool_of(
            worker("any", max_in_flight=2),
            worker("whole", max_in_flight=1, profiles=(Profile(streaming=False),)),
            worker("streamed", max_in_flight=1, profiles=(Profile(streaming=True),)),
            max_in_flight=POOL_CAP,
            queue=QueueOptions(size=QUEUE_SIZE),
            breaker=BreakerOptions(failure_threshold=2, timeout_s=5.0),
        )
        self.running: list[Running] = []
        self.waiting: list[Waiting] = []

    def could_go(self, waiting: Waiting) -> bool:
        """Written out once more, apart from the code under test. None eligible counts: it has to hear so."""
        active = [each for each in self.pool.workers if each.spec.state is WorkerState.ACTIVE]
        eligible = [
            each
            for each in active
            if each.health.state is not Health.UNHEALTHY
            and (len(active) == 1 or each.breaker.permits(self.now))
            and (not each.spec.profiles or each.spec.profiles[0].satisfies(waiting.need))
        ]
        has_room = any(each.in_flight < (each.spec.max_in_flight or 99) for each in eligible)
        return not eligible or (has_room and self.pool.in_flight < POOL_CAP)

    def enters(self, got: tuple[CallLease, WorkerLease], need: Requirement) -> None:
        assert self.pool.in_flight <= POOL_CAP
        assert got[1].worker.in_flight <= (got[1].worker.spec.max_in_flight or 99)
        self.running.append(Running(*got, need, {got[1].worker.spec.id}))

    def refused(self, fault: Fault, *also: FaultKind) -> None:
        assert fault.kind in (FaultKind.NO_WORKER, *also)

    @rule(seconds=st.sampled_from([0.5, 5.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.pool.choose(
            STREAMED, {each.spec.id for each in self.pool.workers}, self.now
        )  # tells the time, takes nothing
        self.pool.wake()

    @rule(need=st.sampled_from([WHOLE, STREAMED]))
    def call_comes(self, need: Requirement) -> None:
        is_anybody_able = any(self.could_go(each) for each in self.waiting)
        try:
            got = self.pool.admit(need, self.now)
            if got is not None:
                assert not is_anybody_able, "overtook"
                self.enters(got, need)
                return
            waiting = Waiting(need)
            waiting.ticket = self.pool.join(lambda: setattr(waiting, "is_woken", True), self.now)
        except Fault as fault:
            self.refused(fault, FaultKind.OVERLOADED if len(self.waiting) == QUEUE_SIZE else FaultKind.NO_WORKER)
            return
        self.waiting.append(waiting)
        self.asks(waiting)

    def asks(self, waiting: Waiting) -> None:
        waiting.is_woken = False
        assert waiting.ticket is not None
        try:
            got = waiting.ticket.admit(waiting.need, self.now)
        except Fault as fault:
            self.refused(fault)
            self.waiting.remove(waiting)
            return
        if got is not None:
            ahead = self.waiting[: self.waiting.index(waiting)]
            self.waiting.remove(waiting)
            before = [each for each in ahead if each.need == waiting.need]
            assert not before, "overtook one with the same need"
            self.enters(got, waiting.need)

    @precondition(lambda self: any(each.is_woken for each in self.waiting))
    @rule()
    def woken_one_asks(self) -> None:
        self.asks(next(each for each in self.waiting if each.is_woken))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def waiting_one_leaves(self, data: st.DataObject) -> None:
        waiting = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        assert waiting.ticket is not None
        waiting.ticket.leave()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), signal=st.sampled_from([*Signal, None]), seconds=st.sampled_from([0.0, 1.0]))
    def call_ends(self, data: st.DataObject, signal: Signal | None, seconds: float) -> None:
        running = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if signal is not None:
            self.now += seconds  # `release` tells no time
            running.at.finish(signal, self.now)
        for lease in data.draw(st.permutations([running.at, running.call, running.at])):
            lease.release()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def call_tries_another(self, data: st.DataObject) -> None:
        running = data.draw(st.sampled_from(self.running))
        running.at.finish(Signal.FAILURE, self.now)
        following = self.pool.choose(running.need, running.tried, self.now)
        running.at.release()
        if following is None:
            self.running.remove(running)
            running.call.release()
        else:
            assert following.worker.spec.id not in running.tried
            running.tried.add(following.worker.spec.id)
            running.at = following

    @rule(at=st.integers(0, 2), state=st.sampled_from(Health))
    def probe_says(self, at: int, state: Health) -> None:
        self.pool.workers[at].health = HealthView(state)
        self.pool.wake()

    @rule(at=st.integers(0, 2), state=st.sampled_from(WorkerState))
    def operator_sets(self, at: int, state: WorkerState) -> None:
        target = self.pool.workers[at]
        target.spec = replace(target.spec, state=state)
        self.pool.update(self.pool.spec, self.pool.workers, self.pool.policy)

    @invariant()
    def counts_equal_leases(self) -> None:
        assert self.pool.in_flight == len(self.running)
        assert self.pool.waiting == len(self.waiting)
        for each in self.pool.workers:
            assert each.in_flight == sum(running.at.worker is each for running in self.running)

    @invariant()
    def no_wake_up_is_lost(self) -> None:
        able = [each for each in self.waiting if self.could_go(each)]
        assert not able or able[0].is_woken

    def teardown(self) -> None:
        for running in self.running:
            running.at.release()
            running.call.release()
        assert self.pool.in_flight == sum(each.in_flight for each in self.pool.workers) == 0


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
