"""One contract, both faces: the wire itself and httpx over it tell the same story of the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from gateway.protocol.faults import Fault, FaultKind
from gateway.upstream.transport import WireTransport
from gateway.upstream.wire import Wire
from tests.fakes.scripts import (
    WRONG_FRAMING,
    Close,
    Reset,
    Script,
    Send,
    Stall,
    chat,
    chat_stream,
    cut_after,
    one_byte_at_a_time,
    raw,
    status,
    wrong_framing,
)
from tests.fakes.worker import FakeWorker
from tests.upstream.client import Client

Told = tuple[int, bytes] | FaultKind
Face = Callable[[bytes], Awaitable[Told]]

KINDS = {
    httpx.ConnectError: FaultKind.CONNECT_FAILED,
    httpx.ConnectTimeout: FaultKind.CONNECT_FAILED,
    httpx.ReadError: FaultKind.UPSTREAM_RESET,
    httpx.RemoteProtocolError: FaultKind.UPSTREAM_PROTOCOL,
    httpx.ReadTimeout: FaultKind.FIRST_BYTE_TIMEOUT,
}


@pytest.fixture(params=["gather", "pump", "next", "httpx", "httpx stream"])
def face(request: pytest.FixtureRequest, wire: Wire, worker: FakeWorker) -> Face:
    async def by_wire(body: bytes) -> Told:
        try:
            answer = await Client(wire, worker).open(body, gather_bytes=1_000_000 if request.param == "gather" else 0)
            pieces: list[bytes] = []
            if request.param == "next":
                pieces.append(await answer.read(1_000_000))
            else:
                await answer.pump(pieces.append)
            return answer.status, b"".join(pieces)
        except Fault as fault:
            return fault.kind

    async def by_httpx(body: bytes) -> Told:
        client = httpx.AsyncClient(transport=WireTransport(wire), timeout=30)
        url = worker.url + "/v1/chat/completions"
        try:
            if request.param == "httpx":
                answer = await client.post(url, content=body)
                return answer.status_code, answer.content
            async with client.stream("POST", url, content=body) as answer:
                return answer.status_code, b"".join([piece async for piece in answer.aiter_raw()])
        except httpx.TransportError as error:
            return KINDS[type(error)]

    return by_httpx if request.param.startswith("httpx") else by_wire


BODY = chat("hello").data.partition(b"\r\n\r\n")[2]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
CASES: dict[str, tuple[Script, Told]] = {
    "whole": (chat("hello"), (200, BODY)),
    "byte by byte": (one_byte_at_a_time(chat("hello")), (200, BODY)),
    "empty": (status(200, body=b""), (200, b"")),
    "error status": (status(429, body=b"slow down"), (429, b"slow down")),
    "redirect": (status(307, headers={"Location": "/"}, body=b""), (307, b"")),
    "no content": (raw(b"HTTP/1.1 204 No\r\n\r\n"), (204, b"")),
    "interim": (raw(b"HTTP/1.1 103 Hints\r\n\r\n" + HEAD + b"hello"), (200, b"hello")),
    "until close": (raw(b"HTTP/1.1 200 OK\r\n\r\nhello", Close()), (200, b"hello")),
    "closed before the head": (Script([Close()]), FaultKind.UPSTREAM_RESET),
    "reset before the head": (Script([Reset()]), FaultKind.UPSTREAM_RESET),
    "closed in the body": (cut_after(60, chat("hello")), FaultKind.UPSTREAM_RESET),
    "stream cut": (cut_after(300, chat_stream(["a", "b"]), Reset()), FaultKind.UPSTREAM_RESET),
    **{kind: (wrong_framing(kind), FaultKind.UPSTREAM_PROTOCOL) for kind in list(WRONG_FRAMING)[::6]},
}


@pytest.mark.parametrize("case", CASES)
async def test_answer_is_told_the_same_by_every_face(face, worker, wire, case):
    script, told = CASES[case]
    worker.next(script)
    assert await face(b"{}") == told
    if told not in (FaultKind.UPSTREAM_RESET, FaultKind.UPSTREAM_PROTOCOL) and case != "until close":
        assert wire.idle_connections == wire.open_connections == 1
    else:
        await worker.until(lambda: wire.open_connections == 0)


@pytest.mark.parametrize("size", [0, 70_000, 3_000_000])
async def test_request_body_of_any_size_arrives_by_every_face(face, worker, size):
    worker.default = chat("hello")
    body = b"0123456789abcdef" * (size // 16)
    assert await face(body) == (200, BODY)
    assert worker.requests[0].body == body


async def test_stale_connection_is_replaced_by_every_face(face, worker):
    assert await face(b"{}") == (200, BODY)
    worker.next(Script([Reset()]), chat("hello"))
    assert await face(b"{}") == (200, BODY)
    assert worker.connections == 2


async def test_silent_worker_is_told_by_every_face(face, worker, clock):
    worker.next(Script([Stall()]))
    call = asyncio.ensure_future(face(b"{}"))
    await worker.until(lambda: worker.requests)
    clock.advance(30)
    assert await call == FaultKind.FIRST_BYTE_TIMEOUT


async def test_cancel_aborts_the_connection_by_every_face(face, worker, wire):
    worker.next(Script([Send(HEAD), Stall()]))
    call = asyncio.ensure_future(face(b"{}"))
    await worker.until(lambda: worker.requests)
    await asyncio.sleep(0.02)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    await worker.until(lambda: worker.closed_by_peer)
    assert wire.open_connections == 0
