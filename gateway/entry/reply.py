"""The caller of a data-plane request, and how its answer is sent without a task switch.

On our own server an answer is written straight to the connection: what uvicorn's `send` does for one, without the
message, the coroutine and two regular expressions a header.

On any other ASGI server it goes out as ASGI messages. `send` is a coroutine function that mostly ends without waiting;
it is stepped once by hand, and only when it really waits (its client does not read) is there anything to await.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.entry.guard import Connection
from gateway.pipeline.client import Client, Headers
from gateway.protocol.headers import request_id_of

Message = MutableMapping[str, Any]
Send = Callable[[Message], Coroutine[Any, Any, None]]
Receive = Callable[[], Awaitable[Message]]
Scope = MutableMapping[str, Any]


def answer_id(scope: Scope) -> tuple[bytes, bytes]:
    """The `x-request-id` header of an answer that is no call: the id asked with, if clean, else a new one."""
    asked = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
    return b"x-request-id", request_id_of(asked, lambda: uuid.uuid4().hex).encode()


def caller(scope: Scope, send: Send, clock: Callable[[], float]) -> Client:
    """The client of a request."""
    connection: Connection | None = scope.get("igw")
    if connection is None:
        return AsgiClient(send, clock)
    return DirectClient(connection, scope["igw.answer"], clock)


class DirectClient(Client):
    """A caller on a connection of ours. `cycle` is uvicorn's state of the one answer."""

    __slots__ = ("_clock", "_connection", "_cycle", "_has_body", "_head", "_is_chunked")

    def __init__(self, connection: Connection, cycle: RequestResponseCycle, clock: Callable[[], float]) -> None:
        super().__init__(asyncio.current_task(), clock())
        self._connection = connection
        self._cycle = cycle
        self._clock = clock
        self._head = b""  # goes out together with what follows it
        self._is_chunked = True
        self._has_body = cycle.scope["method"] != "HEAD"

    def start(self, status: int, headers: Headers) -> Awaitable[None] | None:
        self.is_started = True
        cycle = self._cycle
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        lines = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            if name == b"content-length":
                self._is_chunked = False
            lines.append(b"%b: %b\r\n" % (name, value))
        if self._is_chunked and self._has_body:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        if self._head.count(b"\n") != len(lines) or self._head.count(b"\r") != len(lines):
            raise ValueError("a header of the answer holds a line break")
        return None

    def write(self, data: bytes) -> Awaitable[None] | None:
        if not (self._has_body and data):
            return None
        if self._is_chunked:
            data = b"%b%x\r\n%b\r\n" % (self._head, len(data), data)
        elif self._head:
            data = self._head + data
        return self._put(data)

    def end(self, data: bytes = b"") -> Awaitable[None] | None:
        self.is_finished = True
        last = self._head
        if self._has_body:
            if not self._is_chunked:
                last += data
            elif data:
                last += b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
            else:
                last += b"0\r\n\r\n"
        rest = self._put(last)
        cycle = self._cycle
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._connection.close()
        cycle.on_response()
        return rest

    def abort(self) -> None:
        self.is_finished = True
        if self._head:
            self._put(b"")
        self._connection.close()

    def _put(self, data: bytes) -> Awaitable[None] | None:
        self.last_write_s = self._clock()
        self._head = b""
        cycle = self._cycle
        if cycle.disconnected:
            return None
        cycle.transport.write(data)
        if not cycle.flow.write_paused:
            self.stalled_since_s = None
            return None
        self.stalled_since_s = self.last_write_s
        return self._drained()

    async def _drained(self) -> None:
        await self._cycle.flow.drain()
        self.stalled_since_s = None


class AsgiClient(Client):
    """A caller behind any ASGI server. Leaving an answer incomplete makes the server close the connection."""

    __slots__ = ("_clock", "_head", "_send")

    def __init__(self, send: Send, clock: Callable[[], float]) -> None:
        super().__init__(asyncio.current_task(), clock())
        self._send = send
        self._clock = clock
        self._head: Message | None = None  # goes out together with what follows it

    def start(self, status: int, headers: Headers) -> Awaitable[None] | None:
        self.is_started = True
        self._head = {"type": "http.response.start", "status": status, "headers": headers}
        return None

    def write(self, data: bytes) -> Awaitable[None] | None:
        return self._drive({"type": "http.response.body", "body": data, "more_body": True})

    def end(self, data: bytes = b"") -> Awaitable[None] | None:
        self.is_finished = True
        return self._drive({"type": "http.response.body", "body": data})

    def abort(self) -> None:
        self.is_finished = True

    def _drive(self, message: Message) -> Awaitable[None] | None:
        self.last_write_s = self._clock()
        coroutine = self._send(message) if self._head is None else self._send_both(self._head, message)
        self._head = None
        try:
            first = coroutine.send(None)
        except StopIteration:
            self.stalled_since_s = None
            return None
        self.stalled_since_s = self.last_write_s
        return _Rest(self, coroutine, first)

    async def _send_both(self, head: Message, message: Message) -> None:
        await self._send(head)
        await self._send(message)


class _Rest:
    """The remainder of a coroutine that was stepped once and yielded `first`."""

    __slots__ = ("_client", "_coroutine", "_first")

    def __init__(self, client: Client, coroutine: Coroutine[Any, Any, None], first: Any) -> None:
        self._client, self._coroutine, self._first = client, coroutine, first

    def __await__(self) -> Generator[Any, Any, None]:
        waited = self._first
        try:
            while True:
                try:
                    value = yield waited
                except BaseException as error:
                    waited = self._coroutine.throw(error)
                else:
                    waited = self._coroutine.send(value)
        except StopIteration:
            self._client.stalled_since_s = None
