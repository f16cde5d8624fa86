"""The caller of an ASGI server: answers as ASGI messages, sent without a task switch wherever the server allows it.

`send` of an ASGI server is a coroutine function that mostly ends without waiting. It is stepped once by hand; only when
it really waits (its client does not read) does anybody have to await the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from typing import Any

from gateway.pipeline.client import Client, Headers

Message = MutableMapping[str, Any]
Send = Callable[[Message], Coroutine[Any, Any, None]]
Receive = Callable[[], Awaitable[Message]]
Scope = MutableMapping[str, Any]


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


class AsgiClient(Client):
    """A caller over HTTP."""

    __slots__ = ("_clock", "_close", "_send")

    def __init__(self, send: Send, clock: Callable[[], float], close: Callable[[], None] | None) -> None:
        super().__init__(asyncio.current_task(), clock())
        self._send = send
        self._clock = clock
        self._close = close  # closes the connection; None where the server gives no way to

    def start(self, status: int, headers: Headers) -> Awaitable[None] | None:
        self.is_started = True
        return self._drive({"type": "http.response.start", "status": status, "headers": headers})

    def write(self, data: bytes) -> Awaitable[None] | None:
        return self._drive({"type": "http.response.body", "body": data, "more_body": True})

    def end(self, data: bytes = b"") -> Awaitable[None] | None:
        self.is_finished = True
        return self._drive({"type": "http.response.body", "body": data})

    def abort(self) -> None:
        self.is_finished = True
        if self._close is not None:
            self._close()

    def _drive(self, message: Message) -> Awaitable[None] | None:
        self.last_write_s = self._clock()
        coroutine = self._send(message)
        try:
            first = coroutine.send(None)
        except StopIteration:
            return None
        self.stalled_since_s = self.last_write_s
        return _Rest(self, coroutine, first)
