"""The life of one call over HTTP, phase by phase; the order stands here and nowhere else.

    limits -> which pools -> room for this model -> where -> in whose words -> there and back -> again? -> what happened

Until the first byte of an answer reaches the client, the call may move to another worker, and in a group to another
member. That byte commits it: from then on a failure becomes an error event and the end. Leases are given back in one
place, before anything else is awaited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.pipeline.answer import Answering, send_comment
from gateway.pipeline.exchange import Attempt
from gateway.pipeline.members import Members
from gateway.pipeline.needs import need_of
from gateway.pipeline.order import Order
from gateway.pipeline.ports import Limit, Limiter, ProbeNudge, RestNews, StickyMemory, Verdict
from gateway.pipeline.refusal import PassedOn
from gateway.pipeline.room import Busy, wait_for_room
from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.classes import read_refusal
from gateway.routing.lease import WorkerLease
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need
from gateway.routing.rest import RestReason
from gateway.routing.retry import Reading, read_fault
from gateway.routing.snapshot import ErrorClasses, PoolSpec
from gateway.routing.table import Table

log = logging.getLogger(__name__)


class HttpPipeline:
    """Runs calls. One for a process; it holds no state of its own but what its parts hold."""

    def __init__(
        self,
        table: Table,
        limiter: Limiter,
        nudge: ProbeNudge,
        rests: RestNews,
        stickies: StickyMemory,
        members: Members,
        answering: Answering,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._limiter = limiter
        self._nudge = nudge
        self._rests = rests
        self._stickies = stickies
        self._members = members
        self._answering = answering
        self._clock = clock
        self._unix_clock = unix_clock

    async def serve(self, order: Order) -> None:
        """Answer the client, whatever it takes. Raises Fault while nothing was sent, CancelledError when cancelled."""
        if order.call.is_streaming:
            order.client.on_silence = lambda: send_comment(order)
        if order.key.requests_per_min is not None:
            await self._take(Limit(f"key:{order.key.id}", order.key.requests_per_min), order, "this API key")
        target = order.target
        try:
            if isinstance(target, PoolSpec):
                await self.ask(order, target, may_wait=True)
            else:
                await self._members.walk(order, target, self.ask)
        except PassedOn as refused:
            await refused.deliver(order)

    async def ask(self, order: Order, spec: PoolSpec, *, may_wait: bool, attempts: int | None = None) -> None:
        """Have one pool answer the call, in at most so many attempts.

        Raises PassedOn or Fault when it did not, and while nothing was sent another pool may be asked; Busy when it
        would have to wait and may not.
        """
        order.begin(spec)
        if spec.rate_limit_per_min is not None:
            await self._take(Limit(f"pool:{spec.id}", spec.rate_limit_per_min), order, "this model")
        pool = self._table.pool(spec)
        need = need_of(order.call, pool, order.facts, order.routing, order.key, order.exchange.conversation_id or None)
        if pool.policy.remembers_keys:
            await self._stickies.recall(pool, need)
        leases = pool.admit(need, self._clock())
        if leases is None:
            if not may_wait:
                raise Busy
            leases = await wait_for_room(pool, need, order, self._clock)
        call_lease, worker_lease = leases
        try:
            limit = spec.retry.max_attempts
            await self._attempts(order, pool, need, worker_lease, limit if attempts is None else min(attempts, limit))
        finally:
            call_lease.release()

    async def _take(self, limit: Limit, order: Order, what: str) -> None:
        verdict = self._limiter.try_take(limit) or await self._limiter.take(limit)
        if verdict.is_allowed:
            order.limits.append(verdict)
            order.show(*_limit_headers(min(order.limits, key=lambda taken: taken.remaining)))
            return
        if isinstance(order.target, PoolSpec):  # in a group another member may still answer
            for earlier in order.limits:
                self._limiter.give_back(earlier.limit)
        order.show(*_limit_headers(verdict))
        message = f"Rate limit reached for {what}: {limit.per_min} requests a minute."
        raise Fault(FaultKind.RATE_LIMITED, message, retry_after_s=max(1.0, verdict.retry_after_s))

    async def _attempts(self, order: Order, pool: Pool, need: Need, first: WorkerLease, limit: int) -> None:
        lease = first
        left = limit - 1
        while True:
            attempt = self._begin(order, lease)
            try:
                await self._answering.attempt(order, lease, attempt)
                return
            except PassedOn as refused:  # the worker answered, with an error status
                attempt.outcome = f"status_{refused.status}"
                self._spare(order, lease, refused)
                lease.finish(refused.reading.signal, self._clock())
                following = self._next(order, pool, need, refused.reading, left)
                if following is None:
                    raise
            except Fault as fault:
                reading = self._faulted(order, pool, lease, attempt, fault)
                is_committed = order.exchange.ttft_s is not None
                following = None if is_committed else self._next(order, pool, need, reading, left)
                if following is None:
                    raise
            except BaseException:  # cancelled, mostly
                attempt.outcome = "cancelled"
                raise
            finally:
                lease.release()
                attempt.ended_s = self._clock() - order.exchange.arrived_s
            lease = following
            left -= 1

    def _begin(self, order: Order, lease: WorkerLease) -> Attempt:
        spec = lease.worker.spec
        exchange = order.exchange
        started_s = self._clock() - exchange.arrived_s
        attempt = Attempt(spec.id, spec.name, started_s, order.pool.model, lease.decision)
        exchange.attempts.append(attempt)
        exchange.worker_id, exchange.worker = spec.id, spec.name
        order.tried.add(spec.id)
        return attempt

    def _next(self, order: Order, pool: Pool, need: Need, reading: Reading, left: int) -> WorkerLease | None:
        """The lease of another attempt, if there is one to be made."""
        now = self._clock()
        has_time = order.client.deadline_s - now > pool.spec.timeouts.connect_s
        if not reading.is_retryable or left <= 0 or not has_time:
            return None
        return pool.choose(need, order.tried, now, is_free=reading.is_free)

    def _spare(self, order: Order, lease: WorkerLease, refused: PassedOn) -> None:
        """Let a worker rest that said it cannot serve now."""
        refusal = read_refusal(ErrorClasses.DEFAULT, refused.status, refused.body, order.call.body)
        if refusal.rest is None:
            return
        now = self._clock()
        spec, rest = lease.worker.spec, lease.worker.rest
        if not rest.is_on(now):
            needs_person = refusal.rest is not RestReason.RATE_LIMIT
            fields = {"pool": order.pool.model, "worker": spec.name, "reason": refusal.rest.value}
            log.log(logging.ERROR if needs_person else logging.WARNING, "worker rests", extra={"fields": fields})
        rest.begin(refusal.rest, now, refused.retry_after_s(self._unix_clock()))
        self._rests.tell(spec.id, rest, now)

    def _faulted(self, order: Order, pool: Pool, lease: WorkerLease, attempt: Attempt, fault: Fault) -> Reading:
        """Tell the breaker and the prober what went wrong at a worker."""
        reading = read_fault(fault)
        attempt.outcome = fault.code
        now = self._clock()
        if fault.kind is FaultKind.CONNECT_FAILED:
            pool.refused(lease.worker, now)
        lease.finish(reading.signal, now)
        if reading.wants_probe:
            self._nudge.nudge(lease.worker.spec.id)
        return reading


def _limit_headers(verdict: Verdict) -> list[tuple[bytes, bytes]]:
    """The `x-ratelimit-*` headers of the OpenAI API (platform.openai.com/docs/guides/rate-limits, read 2026-11)."""
    return [
        (b"x-ratelimit-limit-requests", b"%d" % verdict.limit.per_min),
        (b"x-ratelimit-remaining-requests", b"%d" % max(0, verdict.remaining)),
        (b"x-ratelimit-reset-requests", b"%.3gs" % max(0.0, verdict.reset_s)),
    ]
