"""Engines behind gateways: requests go through the gateway's own pools, policies, breakers, budgets and queues.

Each gateway is a host of its own that sees only what passes through it. Only the network, the engines and the client
are models; what the pipeline does between them (wait, try again, tell how it went) is done here in virtual time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.policies.predict import Predict
from gateway.policies.registry import POLICIES
from gateway.protocol.faults import Fault
from gateway.routing.breaker import Breaker
from gateway.routing.lease import CallLease, WorkerLease
from gateway.routing.options import BreakerOptions, QueueOptions, RetryOptions
from gateway.routing.policy import Policy
from gateway.routing.pool import Pool
from gateway.routing.queue import Ticket
from gateway.routing.requirement import Facts, Need, Requirement
from gateway.routing.retry import Signal
from gateway.routing.snapshot import PolicySpec, PoolId, PoolSpec, WorkerId, WorkerSpec
from gateway.routing.worker import Worker
from tests.sim.clock import Clock
from tests.sim.engine import NETWORK_S, Engine, Job, Kind
from tests.sim.workloads import Request, text_of

_REQUIREMENT = Requirement("chat", "m", is_streaming=True)
_PIECES_S = 0.25  # how often the model tells of tokens; what a policy learns is a mean over at least that
_REPORTS_S = 1.0  # how often workers are asked for their load, where the policy reads it
_REFUSAL_S = 0.001  # until a failing worker has answered
NEVER = BreakerOptions(failure_threshold=10_000, success_ratio=0)
PATIENT = QueueOptions(size=100_000, timeout_s=100_000)


class Eager(Predict):
    """`predict` that never waits for a full worker."""

    __slots__ = ()
    binds_late = False


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy as it is run. `binds_late` False is for `predict` only, and takes that away from it."""

    title: str
    policy: str
    options: dict[str, object] = field(default_factory=dict)
    binds_late: bool = True

    def make(self) -> Policy:
        """One of it; raises KeyError for a name that is not registered."""
        entry = POLICIES[self.policy]
        options = entry.options(**self.options)
        return entry.make(options) if self.binds_late else Eager(options, random.random)


@dataclass(frozen=True, slots=True)
class Trouble:
    """From when to when the engine at a place is slower by a factor, or fails at once (`slower` None)."""

    begins_s: float
    ends_s: float
    place: int
    slower: float | None


@dataclass(frozen=True, slots=True)
class Setting:
    """All but the requests and the policy. `caps` are those of the workers, in their order."""

    kinds: tuple[Kind, ...]
    caps: tuple[int, ...] | None = None
    gateways: int = 1
    troubles: tuple[Trouble, ...] = ()
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    queue: QueueOptions = PATIENT


@dataclass(slots=True)
class Answer:
    """What became of a request. Times are None for what did not happen."""

    request: Request
    place: int | None = None
    first_s: float | None = None
    done_s: float | None = None
    is_refused: bool = False
    is_failed: bool = False

    @property
    def is_over(self) -> bool:
        return self.done_s is not None or self.is_refused or self.is_failed


class Fleet:
    """Runs requests through one setting with one policy."""

    def __init__(self, setting: Setting, contender: Contender, seed: int) -> None:
        random.seed(seed)  # what registered policies draw from
        self.setting = setting
        self.clock = Clock()
        self.engines = [Engine(kind, self.clock) for kind in setting.kinds]
        self.answers: list[Answer] = []
        self.left = 0
        self.running: dict[_Call, None] = {}  # with a first token and a policy that follows it
        self._chance = random.Random(seed)
        self._pools = [self._pool(contender) for _ in range(setting.gateways)]
        self._is_reported = contender.policy == "least_load"

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Let all of them happen."""
        self.left = len(requests)
        for request in requests:
            answer = Answer(request)
            self.answers.append(answer)
            call = _Call(self, self._chance.choice(self._pools), answer)
            self.clock.at(request.at_s, call.arrive)
        for trouble in self.setting.troubles:
            self._plan(trouble)
        self.clock.after(_PIECES_S, self._tell_pieces)
        if self._is_reported:
            self.clock.after(0, self._report)
        self.clock.run(lambda: not self.left)
        return self.answers

    def place_of(self, worker: Worker) -> int:
        """The place of the engine that the worker is."""
        return int(worker.spec.name)

    def _pool(self, contender: Contender) -> Pool:
        setting = self.setting
        specs = tuple(
            WorkerSpec(
                WorkerId(str(place)),
                str(place),
                f"http://{place}",
                weight=kind.weight,
                max_in_flight=setting.caps[place] if setting.caps else None,
            )
            for place, kind in enumerate(setting.kinds)
        )
        spec = PoolSpec(
            PoolId(1),
            "m",
            policy=PolicySpec(contender.policy, None),
            queue=setting.queue,
            breaker=setting.breaker,
            retry=setting.retry,
            workers=specs,
        )
        workers = [Worker(each, Breaker(setting.breaker, self._chance.random)) for each in specs]
        return Pool(spec, workers, contender.make(), self._chance.random)

    def _plan(self, trouble: Trouble) -> None:
        engine = self.engines[trouble.place]
        if trouble.slower is None:
            self.clock.at(trouble.begins_s, setattr, engine, "is_failing", True)
            self.clock.at(trouble.ends_s, setattr, engine, "is_failing", False)
        else:
            self.clock.at(trouble.begins_s, engine.slow_down, trouble.slower)
            self.clock.at(trouble.ends_s, engine.slow_down, 1.0)

    def _tell_pieces(self) -> None:
        for call in self.running:
            call.progress()
        self.clock.after(_PIECES_S, self._tell_pieces)

    def _report(self) -> None:
        reports = [engine.report() for engine in self.engines]
        for pool in self._pools:
            for worker in pool.workers:
                worker.report = reports[self.place_of(worker)]
        self.clock.after(_REPORTS_S, self._report)


class _Call:
    """One call on its way, as the pipeline would take it."""

    __slots__ = ("_answer", "_attempts", "_fleet", "_job", "_lease", "_need", "_place", "_pool", "_ticket")

    def __init__(self, fleet: Fleet, pool: Pool, answer: Answer) -> None:
        self._fleet = fleet
        self._pool = pool
        self._answer = answer
        self._attempts: list[WorkerId] = []
        self._ticket: Ticket | None = None
        self._place: CallLease | None = None
        self._lease: WorkerLease | None = None

    def arrive(self) -> None:
        request, clock = self._answer.request, self._fleet.clock
        self._need = Need(
            _REQUIREMENT,
            lambda: Facts(prompt=text_of(request), input_tokens=request.prompt),
            conversation=None if request.conversation is None else str(request.conversation),
        )
        try:
            got = self._pool.admit(self._need, clock.now)
            if got is None:
                self._ticket = self._pool.join(self._need, lambda: clock.after(0, self._ask), clock.now)
                clock.at(self._ticket.until, self._give_up)
                got = self._ticket.admit(clock.now)
        except Fault:
            self._refuse()
        else:
            self._enter(got)

    def _ask(self) -> None:
        if self._ticket is not None:
            try:
                self._enter(self._ticket.admit(self._fleet.clock.now))
            except Fault:
                self._refuse()

    def _give_up(self) -> None:
        if self._ticket is not None:
            try:
                self._enter(self._ticket.admit(self._fleet.clock.now, is_last=True))
            except Fault:
                self._refuse()
            if self._ticket is not None:
                self._ticket.leave()
                self._refuse()

    def _refuse(self) -> None:
        self._ticket = None
        self._answer.is_refused = True
        self._fleet.left -= 1

    def _enter(self, got: tuple[CallLease, WorkerLease] | None) -> None:
        if got is not None:
            self._ticket = None
            self._place, lease = got
            self._send(lease)

    def _send(self, lease: WorkerLease) -> None:
        self._lease = lease
        self._answer.place = self._fleet.place_of(lease.worker)
        self._attempts.append(lease.worker.spec.id)
        self._fleet.clock.after(NETWORK_S / 2, self._reach)

    def _reach(self) -> None:
        engine = self._engine
        if engine.is_failing:
            self._fleet.clock.after(_REFUSAL_S, self._fail)
        else:
            self._job = Job(self._answer.request, self._first, self._done)
            engine.begin(self._job)

    def _first(self) -> None:
        now, lease = self._fleet.clock.now, self._lease
        assert lease is not None
        self._answer.first_s = now
        lease.answered(now)
        if lease.track is not None:
            lease.progressed(1, now)
            self._fleet.running[self] = None

    def progress(self) -> None:
        assert self._lease is not None
        self._lease.progressed(self._engine.tokens(self._job), self._fleet.clock.now)

    def _done(self) -> None:
        self._fleet.running.pop(self, None)
        self._answer.done_s = self._fleet.clock.now
        self._end(Signal.SUCCESS, self._answer.request.output)
        self._leave()

    def _fail(self) -> None:
        self._end(Signal.FAILURE, 0)
        now = self._fleet.clock.now
        following = None
        if len(self._attempts) < self._pool.spec.retry.max_attempts:
            following = self._pool.choose(self._need, self._attempts, now)
        if following is None:
            self._answer.is_failed = True
            self._leave()
        else:
            self._send(following)

    def _end(self, signal: Signal, tokens: int) -> None:
        assert self._lease is not None
        self._lease.finish(signal, self._fleet.clock.now, tokens)
        self._lease.release()

    def _leave(self) -> None:
        assert self._place is not None
        self._place.release()
        self._fleet.left -= 1

    @property
    def _engine(self) -> Engine:
        assert self._answer.place is not None
        return self._fleet.engines[self._answer.place]
