"""The wire behind httpx's API: for vendors, probes and control-plane calls, where convenience is worth its price.

Same pools, same strictness, same deadlines as `wire`. `httpx.AsyncClient(transport=WireTransport(wire))` closes nothing
of the wire's, which others share. Faults become httpx's exceptions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from gateway.protocol.faults import Fault, FaultKind
from gateway.upstream.answer import Answer
from gateway.upstream.wire import Origin, Wire

NO_TIMEOUT_S = 86_400.0  # what httpx's None becomes: nothing waits longer than a day

_ERRORS: dict[FaultKind, type[httpx.TransportError]] = {
    FaultKind.CONNECT_FAILED: httpx.ConnectError,
    FaultKind.UPSTREAM_RESET: httpx.ReadError,
    FaultKind.UPSTREAM_PROTOCOL: httpx.RemoteProtocolError,
    FaultKind.FIRST_BYTE_TIMEOUT: httpx.ReadTimeout,
    FaultKind.IDLE_TIMEOUT: httpx.ReadTimeout,
    FaultKind.DRAINING: httpx.ConnectError,
}


class WireTransport(httpx.AsyncBaseTransport):
    """An httpx transport over a shared `Wire`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, timeout = request.url, request.extensions.get("timeout", {})
        read_s = timeout.get("read") or NO_TIMEOUT_S
        port = url.port or (443 if url.scheme == "https" else 80)
        body = request.stream
        try:
            answer = await self._wire.open(
                Origin(url.host, port, url.scheme == "https"),
                _head(request) + (b"".join(body) if isinstance(body, httpx.ByteStream) else b""),
                connect_s=timeout.get("connect") or NO_TIMEOUT_S,
                first_byte_s=read_s,
                idle_s=read_s,
                more=None if isinstance(body, httpx.ByteStream) else _framed(request),
            )
        except Fault as fault:
            raise _translated(fault) from fault
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer))


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self._answer.next():
                yield piece
        except Fault as fault:
            raise _translated(fault) from fault

    async def aclose(self) -> None:
        self._answer.close()


def _head(request: httpx.Request) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [name + b": " + value for name, value in request.headers.raw]
    if any(not line.isascii() or not line.decode("ascii").isprintable() for line in lines):
        raise httpx.LocalProtocolError("a request line or header with control characters or beyond ASCII")
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _framed(request: httpx.Request) -> AsyncIterator[bytes]:
    assert isinstance(request.stream, httpx.AsyncByteStream)
    if "transfer-encoding" not in request.headers:  # then httpx set a content-length
        async for piece in request.stream:
            yield piece
        return
    async for piece in request.stream:
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def _translated(fault: Fault) -> httpx.TransportError:
    if fault.kind is FaultKind.CONNECT_FAILED and isinstance(fault.__cause__, TimeoutError):
        return httpx.ConnectTimeout(fault.message)
    return _ERRORS[fault.kind](fault.message)
