"""A call of the gateway's own to one of its models, in the name of a caller's key and recorded like any call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.pipeline.client import Client, Headers
from gateway.pipeline.exchange import Exchange, Outcome
from gateway.pipeline.order import Order, RoutingHeaders
from gateway.pipeline.refusal import PassedOn
from gateway.pipeline.room import Busy
from gateway.protocol.faults import Fault, Side
from gateway.routing.snapshot import PoolSpec

log = logging.getLogger(__name__)


class Ask(Protocol):
    """HttpPipeline.ask."""

    def __call__(
        self, order: Order, spec: PoolSpec, *, may_wait: bool, attempts: int | None = None
    ) -> Awaitable[None]: ...


class Collected(Client):
    """A caller that keeps its answer."""

    __slots__ = ("body", "status")

    def __init__(self, now_s: float) -> None:
        super().__init__(None, now_s)
        self.status = 0
        self.body = b""

    def start(self, status: int, headers: Headers) -> None:
        self.is_started = True
        self.status = status

    def write(self, data: bytes) -> None:
        self.body += data

    def end(self, data: bytes = b"") -> None:
        self.body += data
        self.is_finished = True

    def abort(self) -> None:
        self.is_finished = True


class Inquirer:
    """Makes such calls. `on_end` is told of each, like of every call."""

    def __init__(
        self,
        new_id: Callable[[], str],
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        on_end: Callable[[Exchange], None],
    ) -> None:
        self._new_id = new_id
        self._clock = clock
        self._unix_clock = unix_clock
        self._on_end = on_end

    async def ask(self, caller: Order, spec: PoolSpec, body: bytes, ask: Ask, within_s: float) -> bytes | None:
        """The answer's body; None when there is none in time, whatever the reason."""
        now = self._clock()
        exchange_id = self._new_id()
        exchange = Exchange(exchange_id, exchange_id, self._unix_clock(), now, caller.service.name)
        exchange.team_id, exchange.team = caller.key.team_id, caller.key.team
        exchange.key_id, exchange.key = caller.key.id, caller.key.name
        exchange.revision, exchange.model, exchange.request_body = caller.snapshot.revision, spec.model, body
        client = Collected(now)
        order = Order(
            snapshot=caller.snapshot,
            key=caller.key,
            target=spec,
            service=caller.service,
            call=caller.service.read(body),
            exchange=exchange,
            client=client,
            headers=(),
            request_headers=b"content-type: application/json\r\n",
            head=[],
            shows_worker=False,
            routing=RoutingHeaders(priority=caller.routing.priority),
        )
        try:
            async with asyncio.timeout(within_s):
                await ask(order, spec, may_wait=False)
        except (Fault, PassedOn, Busy, TimeoutError) as error:
            exchange.outcome = Outcome.REFUSED if _is_ours(error) else Outcome.FAILED
            exchange.error_code = error.code if isinstance(error, Fault) else "inquiry_failed"
            log.warning("inquiry failed", extra={"fields": {"model": spec.model, "reason": type(error).__name__}})
            return None
        finally:
            exchange.duration_s = self._clock() - now
            self._on_end(exchange)
        return client.body


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, Busy) or (isinstance(error, Fault) and error.side is not Side.UPSTREAM)
