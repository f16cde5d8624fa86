"""The caller's side of one call, as the pipeline sees it: where the answer goes, and whether anybody still wants it.

`entry` implements the sending methods. Each returns None when the bytes were taken at once, else an awaitable to wait
for before more is sent; that is the backpressure of a slow reader.

    open --start--> started --end--> finished
      \\------------- abort ---------> finished       (connection closed; a stream has no final chunk)
"""

from __future__ import annotations

import asyncio
import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from gateway.protocol.faults import Fault, error_body, error_event, error_headers

Headers = Sequence[tuple[bytes, bytes]]


class Ended(enum.Enum):
    """Why a running call is cancelled from outside."""

    CLIENT_GONE = "client_gone"
    SLOW_READER = "slow_reader"
    BODY_TIMEOUT = "body_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    DRAIN = "drain"


class Client(ABC):
    """One caller waiting for one answer. All times are of the loop's monotonic clock, in seconds."""

    __slots__ = (
        "body_bytes",
        "body_since_s",
        "deadline_s",
        "ended",
        "is_event_stream",
        "is_finished",
        "is_started",
        "last_write_s",
        "on_silence",
        "stalled_since_s",
        "task",
    )

    def __init__(self, task: asyncio.Task[None] | None, now_s: float) -> None:
        self.task = task
        self.ended: Ended | None = None
        self.is_started = False
        self.is_finished = False
        self.is_event_stream = False
        self.body_since_s: float | None = None  # the request's body is being read since then
        self.body_bytes = 0
        self.deadline_s = float("inf")
        self.last_write_s = now_s
        self.stalled_since_s: float | None = None  # the client takes no bytes since then
        self.on_silence: Callable[[], None] | None = None  # set while a comment may be sent

    def cancel(self, why: Ended) -> None:
        """Cancel the call's task, once; the first reason stands."""
        if self.ended is None and self.task is not None:
            self.ended = why
            self.task.cancel()

    async def fail(self, fault: Fault, headers: Headers) -> None:
        """Tell the caller of a fault in the form that its answer has reached: an error response, an event, or a cut."""
        if self.is_finished:
            return
        if not self.is_started:
            body = error_body(fault)
            length = (b"content-length", b"%d" % len(body))
            await sent(self.start(fault.status, [*error_headers(fault), length, *headers]))
            await sent(self.end(body))
            return
        if self.is_event_stream:
            await sent(self.write(error_event(fault)))
        self.abort()

    @abstractmethod
    def start(self, status: int, headers: Headers) -> Awaitable[None] | None:
        """Send status and headers."""

    @abstractmethod
    def write(self, data: bytes) -> Awaitable[None] | None:
        """Send a piece of the body."""

    @abstractmethod
    def end(self, data: bytes = b"") -> Awaitable[None] | None:
        """Send the last piece, which may be empty."""

    @abstractmethod
    def abort(self) -> None:
        """Close the connection so that the caller cannot take what it got for a whole answer."""


async def sent(awaitable: Awaitable[None] | None) -> None:
    """Wait for a send that did not end at once."""
    if awaitable is not None:
        await awaitable
