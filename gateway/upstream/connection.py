"""One connection to an upstream: a transport's callbacks on one side, the `Line` of one answer at a time on the other.

It answers for writing (a large request goes out in pieces, no faster than the upstream takes it), for closing once, and
for telling its owner. Which connection serves which exchange is `wire`'s business.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

from gateway.upstream.answer import Answer

WRITE_PIECE_BYTES = 65_536  # the transport's own high-water mark


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections go: what may share a pool."""

    host: str
    port: int
    tls: bool

    @staticmethod
    def of(url: str) -> Origin:
        """The origin of an http or https URL; ValueError for anything else, or a URL with a user in it."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("expected http://host[:port] or https://host[:port]")
        is_tls = parts.scheme == "https"
        return Origin(parts.hostname, parts.port or (443 if is_tls else 80), is_tls)


class Owner(Protocol):
    """Whoever keeps the connections."""

    def made(self, connection: Connection) -> None: ...
    def lost(self, connection: Connection) -> None: ...
    def keep(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One connection; the `Line` of at most one answer at a time."""

    __slots__ = (
        "_is_closed",
        "_owner",
        "_transport",
        "_unsent",
        "answer",
        "idle_since",
        "is_idle",
        "is_reused",
        "is_sending",
        "is_write_paused",
        "origin",
    )

    def __init__(self, owner: Owner, origin: Origin) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._unsent: memoryview | None = None
        self._is_closed = False
        self.origin = origin
        self.answer: Answer | None = None
        self.idle_since = 0.0
        self.is_idle = False
        self.is_reused = False
        self.is_sending = False
        self.is_write_paused = False

    def begin(self, answer: Answer, request: bytes, *, has_more: bool) -> None:
        """Start an exchange."""
        self.answer = answer
        self.is_sending = has_more
        if self._is_closed:
            answer.lose()
        elif has_more or len(request) <= WRITE_PIECE_BYTES:
            self.write(request)
        else:
            self.is_sending = True
            self._unsent = memoryview(request)
            self._write_unsent()

    # The line of an answer

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def pause(self) -> None:
        if self._transport is not None and not self._is_closed:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._is_closed:
            self._transport.resume_reading()

    def release(self) -> None:
        self.answer = None
        self.is_reused = True
        self._owner.keep(self)

    def abort(self) -> None:
        """Close at once. Everybody concerned is told here: a transport may never report the end of an aborted one."""
        if self._transport is not None:
            self._transport.abort()
        if self._is_closed:
            return
        self._is_closed = True
        self._unsent = None
        self._owner.lost(self)
        answer, self.answer = self.answer, None
        if answer is not None:
            answer.lose()

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class
        if self._is_closed:  # given up while the handshake ended
            self._transport.abort()
        else:
            self._owner.made(self)

    def data_received(self, data: bytes) -> None:
        if self.answer is not None:
            self.answer.feed(data)
        else:  # bytes that nobody asked for
            self.abort()

    def eof_received(self) -> None:
        if self.answer is not None:
            self.answer.end()
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.abort()

    def pause_writing(self) -> None:
        self.is_write_paused = True

    def resume_writing(self) -> None:
        self.is_write_paused = False
        if self._unsent is not None:
            self._write_unsent()
        if self.answer is not None:
            self.answer.proceed()

    def _write_unsent(self) -> None:
        assert self._transport is not None
        while self._unsent and not self.is_write_paused and not self._transport.is_closing():
            self._transport.write(self._unsent[:WRITE_PIECE_BYTES])
            self._unsent = self._unsent[WRITE_PIECE_BYTES:]
        if not self._unsent:
            self._unsent = None
            self.is_sending = False
