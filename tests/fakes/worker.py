"""A worker on a real TCP port that does with each request exactly what a script says, byte by byte.

    async with FakeWorker() as worker:             # in the loop of the test
    with FakeWorker.in_thread() as worker:         # in a thread of its own, for tests of real gateway processes
        worker.next(status(503), chat("hello"))    # the scripts of the next requests, in order
        worker.default = chat_stream(["a", "b"])   # else this one; a callable gets the request

Without more, a request is answered by `answer_chat`. GET /health answers 200 and takes no script; `is_healthy = False`
makes it 503. What happened is in `requests`, `health_requests`, `connections` (ever accepted), `open_connections` and
`closed_by_peer`. `until` and `wait_until` wait for a condition with a deadline.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast

from tests.fakes.scripts import Close, Pause, Reset, Script, Send, Stall, Wait, chat, chat_stream, status


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; header names in lower case. `body` is empty when its script did not read it."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    head: bytes
    connection: int  # 0 for the first connection that was accepted
    at_s: float  # time.monotonic when it was complete

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)

    def json(self) -> object:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class ClosedByPeer:
    """The peer ended a connection; `in_request` when a script was running on it."""

    connection: int
    at_s: float
    in_request: bool


def answer_chat(request: Request) -> Script:
    """A chat completion, streamed if the request asks for it."""
    try:
        asks = json.loads(request.body)
    except ValueError:
        asks = None
    if not (isinstance(asks, dict) and asks.get("stream")):
        return chat()
    wants_usage = (asks.get("stream_options") or {}).get("include_usage")
    return chat_stream(usage=(5, 2) if wants_usage else None)


class FakeWorker:
    """The listener. `port` may be given to come back at the same address."""

    def __init__(
        self,
        default: Script | Callable[[Request], Script] = answer_chat,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.default = default
        self.is_healthy = True
        self.requests: list[Request] = []
        self.health_requests: list[Request] = []
        self.connections = 0
        self.closed_by_peer: list[ClosedByPeer] = []
        self.errors: list[Exception] = []  # of a script or a request that could not be read; `stop` raises the first
        self.host, self.port = host, port
        self._tls = tls
        self._scripts: deque[Script] = deque()
        self._open: set[_Peer] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def next(self, *scripts: Script) -> None:
        """Queue the scripts of the next requests."""
        self._scripts.extend(scripts)

    async def until(self, condition: Callable[[], object], within_s: float = 5.0) -> None:
        """Wait in the worker's loop, or any other, for a condition."""
        end = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end, "the condition did not come true in time"
            await asyncio.sleep(0.002)

    def wait_until(self, condition: Callable[[], object], within_s: float = 5.0) -> None:
        """The same for tests that are not async."""
        end = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end, "the condition did not come true in time"
            time.sleep(0.002)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Peer(self), self.host, self.port, ssl=self._tls, reuse_address=True, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        assert self._server is not None
        self._server.close()
        peers = tuple(self._open)
        for peer in peers:
            peer.end()
        await asyncio.gather(*(peer.task for peer in peers), return_exceptions=True)
        await self.until(lambda: not self._open)
        if self.errors:
            raise self.errors[0]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.stop()

    @classmethod
    @contextmanager
    def in_thread(
        cls,
        default: Script | Callable[[Request], Script] = answer_chat,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> Iterator[Self]:
        """Run one in a loop and a thread of its own."""
        worker = cls(default, host=host, port=port)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="fake-worker", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(worker.start(), loop).result(5)
            try:
                yield worker
            finally:
                asyncio.run_coroutine_threadsafe(worker.stop(), loop).result(5)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5)
            loop.close()

    # What peers report

    def opened(self, peer: _Peer) -> int:
        self._open.add(peer)
        self.connections += 1
        return self.connections - 1

    def closed(self, peer: _Peer) -> None:
        self._open.discard(peer)

    def script_for(self, path: str) -> Script | None:
        """What to do with the next request; None: the default decides when it has the whole request."""
        if path == "/health":
            return status(200, body=b"{}") if self.is_healthy else status(503)
        if self._scripts:
            return self._scripts.popleft()
        return self.default if isinstance(self.default, Script) else None

    def script_of(self, request: Request) -> Script:
        return self.default if isinstance(self.default, Script) else self.default(request)

    def received(self, request: Request) -> None:
        (self.health_requests if request.path == "/health" else self.requests).append(request)


class _Gone(Exception):
    """The peer ended the connection."""


class _Peer(asyncio.Protocol):
    """One accepted connection: collects bytes, and a task runs the scripts."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_ours = False  # the end of the connection is our doing
        self._is_in_request = False
        self._is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._number = self._worker.opened(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > 65_536:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        self._lost()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()
        self._worker.closed(self)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def end(self) -> None:
        self._is_ours = True
        self._transport.abort()
        self.task.cancel()

    def _lost(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            if not self._is_ours:
                closed = ClosedByPeer(self._number, time.monotonic(), self._is_in_request)
                self._worker.closed_by_peer.append(closed)
            self._news.set()
            self.task.cancel()

    async def _serve(self) -> None:
        try:
            while not self._is_ours:
                await self._one()
        except (asyncio.CancelledError, _Gone):
            pass
        except Exception as error:
            self._worker.errors.append(error)
        finally:
            if not self._is_ours:
                self._transport.abort()

    async def _one(self) -> None:
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
        self._is_in_request = True
        head = await self._read(self._buffer.index(b"\r\n\r\n") + 4)
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:-2])]
        script, body = self._worker.script_for(path), b""
        if script is None or script.reads_body:
            body = await self._read_body(dict(headers), script.read_bytes_per_s if script else None)
        request = Request(method, path, headers, body, head, self._number, time.monotonic())
        self._worker.received(request)
        for step in (script or self._worker.script_of(request)).steps:
            await self._do(step)
        self._is_in_request = False

    async def _do(self, step: object) -> None:
        if isinstance(step, Send):
            self._transport.write(step.data)
            await self._can_write.wait()
        elif isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Wait):
            if isinstance(step.event, asyncio.Event):
                await step.event.wait()
            else:
                await self._worker.until(step.event.is_set, within_s=60)
        elif isinstance(step, Stall):
            await asyncio.Event().wait()
        else:
            self._is_ours = True
            if isinstance(step, Reset):
                sock = self._transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._transport.abort()
            else:
                assert isinstance(step, Close)
                self._transport.close()

    async def _read_body(self, headers: dict[str, str], bytes_per_s: float | None) -> bytes:
        if headers.get("transfer-encoding", "") == "chunked":
            body = b""
            while size := int((await self._line()).split(b";")[0], 16):
                body += await self._read(size)
                await self._line()
            await self._line()
            return body
        length, body = int(headers.get("content-length", "0")), b""
        if bytes_per_s is None:
            return await self._read(length)
        while len(body) < length:
            piece = min(length - len(body), 65_536)
            body += await self._read(piece)
            await asyncio.sleep(piece / bytes_per_s)
        return body

    async def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            await self._more()
        return await self._read(self._buffer.index(b"\r\n") + 2)

    async def _read(self, n_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < n_bytes:
            if not self._buffer:
                await self._more()
            taken = self._buffer[: n_bytes - len(data)]
            data += taken
            del self._buffer[: len(taken)]
        return bytes(data)

    async def _more(self) -> None:
        self._news.clear()
        if self._is_gone:
            raise _Gone
        if not self._transport.is_closing():
            self._transport.resume_reading()
        await self._news.wait()
