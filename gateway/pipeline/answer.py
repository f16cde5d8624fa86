"""One attempt at one worker: in whose words it is asked, and how its answer reaches the client.

The answer takes one of three ways: whole (small, not streamed), relayed piece by piece, or refused by its status. The
first byte of a body that is not an error commits the call: `exchange.ttft_s` is set, and from then on no other worker
is tried.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping

from gateway.pipeline.client import sent
from gateway.pipeline.exchange import Attempt, Outcome, Usage, UsageSource
from gateway.pipeline.order import Order
from gateway.pipeline.refusal import PassedOn, redacted
from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.headers import forward_response
from gateway.protocol.quotas import read_quota
from gateway.protocol.usage import TokenCount
from gateway.routing.lease import WorkerLease
from gateway.routing.retry import Signal, read_status
from gateway.routing.snapshot import HistoryMode, WorkerSpec
from gateway.routing.worker import Quota
from gateway.upstream.answer import Answer
from gateway.upstream.wire import Origin, Wire
from gateway.vendors.base import Adapter

_GATHER_BYTES = 256 * 1024  # an answer up to this size is taken whole: one wake-up instead of one a read
_ERROR_BYTES = 256 * 1024
_EVENT_STREAM = b"text/event-stream"
_STREAM_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Answering:
    """Makes attempts. Heads of requests are rendered once per worker and path."""

    def __init__(
        self,
        wire: Wire,
        adapters: Mapping[str, Adapter],
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        history_limit_bytes: int,
        via: bytes,
    ) -> None:
        self._wire = wire
        self._adapters = adapters
        self._clock = clock
        self._unix_clock = unix_clock
        self._history_limit_bytes = history_limit_bytes
        self._via = via
        self._heads: dict[tuple[str, str], tuple[WorkerSpec, bytes, Origin]] = {}

    def forget(self, in_use: set[str]) -> None:
        """Drop what is kept for workers that are no longer configured."""
        self._heads = {key: kept for key, kept in self._heads.items() if key[0] in in_use}

    async def attempt(self, order: Order, lease: WorkerLease, attempt: Attempt) -> None:
        """Ask one worker and answer the client. Raises PassedOn or Fault when another worker may be asked instead."""
        spec = lease.worker.spec
        timeouts = order.pool.timeouts
        head, origin = self._head(order.pool.backend, spec, order.call.path)
        service = order.service
        asks_usage = order.call.is_streaming and order.pool.asks_stream_usage
        body = service.body(order.call, model=spec.upstream_model or order.pool.model, ask_usage=asks_usage)
        request = b"%b%bx-request-id: %b\r\nvia: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            head,
            order.request_headers,
            order.exchange.request_id.encode(),
            self._via,
            len(body),
            body,
        )
        answer = await self._wire.open(
            origin,
            request,
            connect_s=timeouts.connect_s,
            first_byte_s=timeouts.first_byte_s,
            idle_s=timeouts.idle_s,
            gather_bytes=0 if order.call.is_streaming else _GATHER_BYTES,
        )
        try:
            attempt.status = answer.status
            if not spec.is_probed:  # a vendor, who says what is left
                self._note_quota(lease, answer)
            if not 200 <= answer.status < 300:
                await self._refused(lease, answer)
            elif order.call.is_streaming and _content_type(answer).startswith(_EVENT_STREAM):
                await self._streamed(order, lease, attempt, answer)
            elif answer.is_complete:
                await self._whole(order, lease, attempt, answer)
            else:
                await self._relayed(order, lease, attempt, answer)
        finally:
            answer.close()

    def _head(self, backend: str, spec: WorkerSpec, path: str) -> tuple[bytes, Origin]:
        kept = self._heads.get((spec.id, path))
        if kept is None or kept[0] is not spec:
            kept = (spec, self._adapters[backend].head(spec, path), Origin.of(spec.url))
            self._heads[(spec.id, path)] = kept
        return kept[1], kept[2]

    def _note_quota(self, lease: WorkerLease, answer: Answer) -> None:
        quota = read_quota(answer.headers, self._unix_clock())
        if quota is not None:
            lease.worker.quota = Quota(quota[0], self._clock() + quota[1])

    async def _refused(self, lease: WorkerLease, answer: Answer) -> None:
        body = redacted(await answer.read(_ERROR_BYTES), lease.worker.spec)
        raise PassedOn(answer.status, forward_response(answer.headers), body, read_status(answer.status))

    async def _whole(self, order: Order, lease: WorkerLease, attempt: Attempt, answer: Answer) -> None:
        body = answer.body
        counted = order.service.usage(body)  # raises UPSTREAM_PROTOCOL for what is no JSON object
        self._commit(order, lease, attempt)
        exchange = order.exchange
        exchange.usage = _usage(counted, order, len(body))
        attempt.outcome = "ok"
        lease.finish(Signal.SUCCESS, self._clock(), exchange.usage.output_tokens)
        lease.release()
        answer.close()
        exchange.outcome, exchange.status = Outcome.COMPLETED, answer.status
        exchange.response_bytes = len(body)
        if exchange.history is HistoryMode.FULL:
            exchange.response_body = body[: self._history_limit_bytes]
            exchange.is_truncated = len(body) > self._history_limit_bytes
        head = [*forward_response(answer.headers), (b"content-length", b"%d" % len(body)), *order.answer_head()]
        await sent(order.client.start(answer.status, head))
        await sent(order.client.end(body))

    async def _relayed(self, order: Order, lease: WorkerLease, attempt: Attempt, answer: Answer) -> None:
        """An answer that is too large to hold, or of unknown length: passed on as it comes."""
        client, exchange = order.client, order.exchange
        kept = Kept(order, self._history_limit_bytes)
        length = [(n, v) for n, v in answer.headers if n == b"content-length"]

        def sink(piece: bytes) -> Awaitable[None] | None:
            if exchange.ttft_s is None:
                self._commit(order, lease, attempt)
                exchange.status = answer.status
                client.start(answer.status, [*forward_response(answer.headers), *length, *order.answer_head()])
            kept.add(piece)
            return client.write(piece)

        try:
            await answer.pump(sink)
        finally:
            kept.store()
        attempt.outcome = "ok"
        lease.finish(Signal.SUCCESS, self._clock())
        lease.release()
        answer.close()
        exchange.outcome = Outcome.COMPLETED
        if exchange.ttft_s is None:
            sink(b"")
        await sent(client.end())

    async def _streamed(self, order: Order, lease: WorkerLease, attempt: Attempt, answer: Answer) -> None:
        client, exchange = order.client, order.exchange
        stream = order.service.stream(wants_usage=order.call.wants_usage)
        kept = Kept(order, self._history_limit_bytes)
        held: list[bytes] = []
        clock = self._clock
        if client.on_silence is not None:
            client.on_silence = lambda: send_comment(order) if stream.is_between_events else None

        def sink(piece: bytes) -> Awaitable[None] | None:
            had_error = stream.error
            out = stream.feed(piece)
            if exchange.ttft_s is None:
                if stream.error:
                    raise Fault(FaultKind.UPSTREAM_STATUS, "The worker's stream began with an error.")
                held.append(out)
                if not stream.has_event:
                    return None
                self._commit(order, lease, attempt)
                exchange.status = 200
                start_stream(order)
                out = b"".join(held)
            elif stream.error and not had_error:
                out = redacted(out, lease.worker.spec)
            if lease.track is not None:
                lease.progressed(stream.estimated_output_tokens, clock())
            kept.add(out)
            return client.write(out) if out else None

        try:
            await answer.pump(sink)
            rest = stream.finish()
            if exchange.ttft_s is None and stream.has_event and not stream.error:
                sink(b"")  # the only event had no end of its own
            if exchange.ttft_s is None:
                raise Fault(FaultKind.UPSTREAM_PROTOCOL, "The worker ended its stream without an event.")
            if not stream.is_finished and not stream.error:
                raise Fault(FaultKind.STREAM_INTERRUPTED, "The worker ended the stream before the answer was complete.")
            kept.add(rest)
        finally:
            kept.store()
            if exchange.ttft_s is not None:
                exchange.usage = _usage(stream.usage, order, 4 * stream.estimated_output_tokens)
        client.on_silence = None
        attempt.outcome = "in_band_error" if stream.error else "ok"
        signal = Signal.FAILURE if stream.error else Signal.SUCCESS
        lease.finish(signal, self._clock(), exchange.usage.output_tokens)
        lease.release()
        answer.close()
        if stream.error:
            exchange.outcome, exchange.error_code = Outcome.INTERRUPTED, "upstream_error"
            if rest:
                await sent(client.write(rest))
            client.abort()
        else:
            exchange.outcome = Outcome.COMPLETED
            await sent(client.end(rest))

    def _commit(self, order: Order, lease: WorkerLease, attempt: Attempt) -> None:
        now = self._clock()
        order.exchange.ttft_s = attempt.first_byte_s = now - order.exchange.arrived_s
        lease.answered(now)


def start_stream(order: Order) -> None:
    """Send the head of an event stream, once; comments may have sent it before the first event."""
    if not order.client.is_started:
        order.client.is_event_stream = True
        order.client.start(200, [*_STREAM_HEAD, *order.answer_head()])


def send_comment(order: Order) -> None:
    """One SSE comment, which clients skip and proxies count as traffic."""
    start_stream(order)
    rest = order.client.write(b": ping\n\n")
    if inspect.iscoroutine(rest):
        rest.close()  # sent, but the client does not read: that is noticed by whoever sends next


class Kept:
    """The copy of an answer for the history, up to a limit; nothing is kept unless the pool's history is full."""

    __slots__ = ("_exchange", "_pieces", "_room")

    def __init__(self, order: Order, limit_bytes: int) -> None:
        self._exchange = order.exchange
        self._pieces: list[bytes] = []
        self._room = limit_bytes if order.exchange.history is HistoryMode.FULL else 0

    def add(self, piece: bytes) -> None:
        self._exchange.response_bytes += len(piece)
        if self._room > 0:
            self._pieces.append(piece if len(piece) <= self._room else piece[: self._room])
            self._room -= len(self._pieces[-1])

    def store(self) -> None:
        exchange = self._exchange
        exchange.response_body = b"".join(self._pieces)
        exchange.is_truncated = (
            exchange.history is HistoryMode.FULL and len(exchange.response_body) < exchange.response_bytes
        )
        self._pieces.clear()


def _usage(counted: TokenCount | None, order: Order, output_chars: int) -> Usage:
    """Tokens as the worker counted them, else by the rule of thumb of four characters a token, marked so."""
    if counted is not None:
        return Usage(counted.input, counted.output, counted.cached, UsageSource.UPSTREAM)
    return Usage(len(order.call.body) // 4, output_chars // 4, 0, UsageSource.ESTIMATED)


def _content_type(answer: Answer) -> bytes:
    for name, value in answer.headers:
        if name == b"content-type":
            return value.lower()
    return b""
