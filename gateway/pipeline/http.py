"""The life of one call over HTTP, phase by phase; the order stands here and nowhere else.

    limits -> room for this model -> where -> in whose words -> there and back -> again? -> what happened

Until the first byte of an answer reaches the client, the call may move to another worker. That byte commits it: from
then on a failure becomes an error event and the end. Leases are given back in one place, before anything else is
awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.pipeline.answer import Answering, send_comment
from gateway.pipeline.exchange import Attempt
from gateway.pipeline.order import Order
from gateway.pipeline.ports import Limit, Limiter, ProbeNudge, Verdict
from gateway.pipeline.refusal import PassedOn
from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.pool import CallLease, Pool, WorkerLease
from gateway.routing.requirement import Requirement
from gateway.routing.retry import read_fault
from gateway.routing.table import Table


class HttpPipeline:
    """Runs calls. One for a process; it holds no state of its own but what its parts hold."""

    def __init__(
        self,
        table: Table,
        limiter: Limiter,
        nudge: ProbeNudge,
        answering: Answering,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._limiter = limiter
        self._nudge = nudge
        self._answering = answering
        self._clock = clock

    async def serve(self, order: Order) -> None:
        """Answer the client, whatever it takes. Raises Fault while nothing was sent, CancelledError when cancelled."""
        if order.call.is_streaming:
            order.client.on_silence = lambda: send_comment(order)
        await self._take_limits(order)
        pool = self._table.pool(order.pool)
        need = Requirement(order.call.service, order.pool.model, order.call.is_streaming)
        call_lease, worker_lease = pool.admit(need, self._clock()) or await self._wait_for_room(pool, need, order)
        try:
            await self._attempts(order, pool, need, worker_lease)
        finally:
            call_lease.release()

    async def _take_limits(self, order: Order) -> None:
        limits = []
        if order.key.requests_per_min is not None:
            limits.append(Limit(f"key:{order.key.id}", order.key.requests_per_min))
        if order.pool.rate_limit_per_min is not None:
            limits.append(Limit(f"pool:{order.pool.id}", order.pool.rate_limit_per_min))
        taken: list[Verdict] = []
        for limit in limits:
            verdict = self._limiter.try_take(limit) or await self._limiter.take(limit)
            if not verdict.is_allowed:
                for earlier in taken:
                    self._limiter.give_back(earlier.limit)
                order.head += _limit_headers(verdict)
                what = "this API key" if limit.scope.startswith("key:") else "this model"
                message = f"Rate limit reached for {what}: {limit.per_min} requests a minute."
                raise Fault(FaultKind.RATE_LIMITED, message, retry_after_s=max(1.0, verdict.retry_after_s))
            taken.append(verdict)
        if taken:
            order.head += _limit_headers(min(taken, key=lambda verdict: verdict.remaining))

    async def _wait_for_room(self, pool: Pool, need: Requirement, order: Order) -> tuple[CallLease, WorkerLease]:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        since_s = self._clock()
        ticket = pool.join(wake, since_s)
        try:
            async with asyncio.timeout(pool.spec.queue.timeout_s):
                while (got := ticket.admit(need, self._clock())) is None:
                    await woken
                    woken = loop.create_future()
                return got
        except TimeoutError:
            message = f"No place became free within {pool.spec.queue.timeout_s:g} s."
            raise Fault(FaultKind.OVERLOADED, message, retry_after_s=1.0) from None
        finally:
            ticket.leave()
            order.exchange.queued_s = self._clock() - since_s

    async def _attempts(self, order: Order, pool: Pool, need: Requirement, first: WorkerLease) -> None:
        lease: WorkerLease | None = first
        while lease is not None:
            attempt = self._begin(order, lease)
            following: WorkerLease | None = None
            try:
                await self._answering.attempt(order, lease, attempt)
                return
            except PassedOn as refused:  # the worker answered, with a status that another worker may better
                attempt.outcome = f"status_{refused.status}"
                lease.finish(refused.reading.signal, self._clock())
                following = self._next(order, pool, need)
                if following is None:
                    await refused.deliver(order)
                    return
            except Fault as fault:
                following = self._after_fault(order, pool, need, lease, attempt, fault)
                if following is None:
                    raise
            except asyncio.CancelledError:
                attempt.outcome = "cancelled"
                raise
            finally:
                lease.release()
                attempt.ended_s = self._clock() - order.exchange.arrived_s
            lease = following

    def _begin(self, order: Order, lease: WorkerLease) -> Attempt:
        spec = lease.worker.spec
        exchange = order.exchange
        attempt = Attempt(spec.id, spec.name, self._clock() - exchange.arrived_s)
        exchange.attempts.append(attempt)
        exchange.worker_id, exchange.worker = spec.id, spec.name
        order.tried.add(spec.id)
        return attempt

    def _may_retry(self, order: Order) -> bool:
        return len(order.exchange.attempts) < order.pool.retry.max_attempts

    def _next(self, order: Order, pool: Pool, need: Requirement) -> WorkerLease | None:
        return pool.choose(need, order.tried, self._clock()) if self._may_retry(order) else None

    def _after_fault(
        self, order: Order, pool: Pool, need: Requirement, lease: WorkerLease, attempt: Attempt, fault: Fault
    ) -> WorkerLease | None:
        """Tell the breaker and the prober; the lease of the next attempt if there is one to be made."""
        reading = read_fault(fault)
        attempt.outcome = fault.code
        lease.finish(reading.signal, self._clock())
        if reading.wants_probe:
            self._nudge.nudge(lease.worker.spec.id)
        is_committed = order.exchange.ttft_s is not None
        return None if is_committed or not reading.is_retryable else self._next(order, pool, need)


def _limit_headers(verdict: Verdict) -> list[tuple[bytes, bytes]]:
    """The `x-ratelimit-*` headers of the OpenAI API (platform.openai.com/docs/guides/rate-limits, read 2026-11)."""
    return [
        (b"x-ratelimit-limit-requests", b"%d" % verdict.limit.per_min),
        (b"x-ratelimit-remaining-requests", b"%d" % max(0, verdict.remaining)),
        (b"x-ratelimit-reset-requests", b"%.3gs" % max(0.0, verdict.reset_s)),
    ]
