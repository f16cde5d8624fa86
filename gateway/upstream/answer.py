"""One answer of an upstream: handed on piece by piece as it is read, never buffered beyond a bound.

An `Answer` is fed the bytes of one connection and read by one task. It answers for the deadlines of the answer and for
backpressure. What is valid HTTP is `framing`'s business; connections are `connection`'s, seen here as a `Line`.

    head        status 0; the first-byte deadline runs
    body        status set; the first-byte deadline runs until the first body byte, then the idle deadline
    complete    is_complete; the line was released, or aborted when it must not be reused
    failed      the line was aborted; pieces that came before are still handed on, then the fault is raised

No deadline runs while reading is paused, because then it is our side that is slow. A reader that is cancelled, or
whose sink raises, aborts the line.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Protocol

from gateway.protocol.faults import Fault, FaultKind
from gateway.upstream.framing import Framing, invalid

UNREAD_LIMIT_BYTES = 65_536

Sink = Callable[[bytes], Awaitable[None] | None]


class Line(Protocol):
    """A connection as its answer sees it."""

    is_reused: bool
    is_sending: bool  # the request is not out yet: an answer now is an early one, and the line is not reused
    is_write_paused: bool

    def write(self, data: bytes) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def release(self) -> None: ...
    def abort(self) -> None: ...


class Answer(Framing):
    """Status, headers and body of one answer."""

    __slots__ = (
        "_clock",
        "_error",
        "_first_byte_s",
        "_heard",
        "_idle_s",
        "_is_paused",
        "_line",
        "_pending",
        "_sink",
        "_waiter",
        "_wake_above",
        "is_stale",
    )

    def __init__(
        self,
        line: Line,
        clock: Callable[[], float],
        *,
        is_head: bool,
        first_byte_s: float,
        idle_s: float,
        gather_bytes: int,
    ) -> None:
        super().__init__(is_head=is_head)
        self.is_stale = False  # a reused line died before it gave a byte: the request may be sent again
        self._line: Line | None = line
        self._clock = clock
        self._first_byte_s = first_byte_s
        self._idle_s = idle_s
        self._heard = clock()  # the running deadline counts from here
        self._wake_above = gather_bytes or -1  # the reader is woken by more body than this
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._pending: Awaitable[None] | None = None
        self._error: BaseException | None = None
        self._is_paused = False

    # What a reader calls

    async def pump(self, sink: Sink) -> None:
        """Hand every piece to `sink` until the answer is complete; a piece is what one read of the socket brought.

        The sink is called straight out of the socket's callback while nothing is pending, so that a piece costs no
        switch of tasks. It returns None when it took the piece, or an awaitable, for which reading stops. Raises
        the answer's fault, or what the sink raised.
        """
        try:
            while self._pieces or not self.is_complete:
                if self._pieces:
                    self._pending = sink(self.take())
                elif self._error is not None:
                    raise self._error
                else:
                    self._sink = sink
                    self._resume()
                    await self._wait()
                if self._pending is not None:
                    self._pause()
                    await self._pending
                    self._pending = None
        except BaseException:
            self.close()
            raise
        finally:
            self._sink = None
            if inspect.iscoroutine(self._pending):
                self._pending.close()

    async def next(self) -> bytes:
        """The next piece; empty when the answer is complete."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return b""
            self._resume()
            await self._wait()
        return self.take()

    async def read(self, limit_bytes: int) -> bytes:
        """The whole rest of the body; UPSTREAM_PROTOCOL when it is longer than `limit_bytes`."""
        body = bytearray()
        while piece := await self.next():
            body += piece
            if len(body) > limit_bytes:
                self.close()
                raise invalid(f"a body of at most {limit_bytes} bytes was expected, got more")
        return bytes(body)

    def close(self) -> None:
        """Give up what has not come yet: aborts the line of an incomplete answer. Idempotent."""
        if self._line is not None:
            self.fail(Fault(FaultKind.UPSTREAM_RESET, "the answer was given up before its end"))

    # What the wire calls

    async def send(self, more: AsyncIterable[bytes]) -> None:
        """Write the rest of a request as it comes, no faster than the upstream takes it; an early answer ends it."""
        try:
            async for piece in more:
                while self._line is not None and self._line.is_write_paused and not self.status:
                    await self._wait()
                if self._line is None or self.status:
                    return
                self._heard = self._clock()
                self._line.write(piece)
            if self._line is not None:
                self._line.is_sending = False
                self._heard = self._clock()
        except BaseException:
            self.close()
            raise

    async def ready(self) -> None:
        """Wait for the head, or with `gather_bytes` for the body or that much of it. Raises the answer's fault."""
        while not (self.is_complete or self._error or (self.status and self._size > self._wake_above)):
            await self._wait()
        self._wake_above = 0
        if self._error is not None:
            raise self._error

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        if self._line is None:
            return
        try:
            self.parse(data)
        except Fault as fault:
            self.fail(fault)
            return
        if self.has_body:
            self._heard = self._clock()
        if self.is_complete:
            self._finish()
        if self._sink is not None:
            if self._size:
                self._deliver()
            if self.is_complete:
                self._wake()
        elif self.is_complete or (self.status and self._size > self._wake_above):
            self._wake()
            if self._size > UNREAD_LIMIT_BYTES:
                self._pause()

    def end(self) -> None:
        """The upstream closed: the end of an answer without a length, else a fault."""
        if self.reads_to_eof:
            self.is_complete = True
            self._finish()
            self._wake()
        else:
            self.lose()

    def lose(self) -> None:
        """The connection is gone."""
        if self._line is not None:
            self.is_stale = self._line.is_reused and self.is_untouched
            what = "in the middle of its answer" if self.status else "without an answer"
            self.fail(Fault(FaultKind.UPSTREAM_RESET, f"the upstream closed the connection {what}"))

    def proceed(self) -> None:
        """The upstream took some of the request."""
        self._heard = self._clock()
        self._wake()

    def check(self, now: float) -> None:
        """Apply the deadlines; called by the sweeper."""
        line, quiet_s = self._line, now - self._heard
        if line is None or self._is_paused or (line.is_sending and not line.is_write_paused):
            return
        if not self.has_body and quiet_s >= self._first_byte_s:
            self.fail(Fault(FaultKind.FIRST_BYTE_TIMEOUT, f"no first byte came within {self._first_byte_s:g} s"))
        elif self.has_body and quiet_s >= self._idle_s:
            self.fail(Fault(FaultKind.IDLE_TIMEOUT, f"the answer stalled for {self._idle_s:g} s"))

    def fail(self, error: BaseException) -> None:
        """End the answer with a fault; what came before is still handed on."""
        self._error, self.is_complete, self._sink = error, False, None
        line, self._line = self._line, None
        self.end_parsing()
        if line is not None:
            line.abort()
        self._wake()

    # Inside

    def _deliver(self) -> None:
        assert self._sink is not None
        try:
            self._pending = self._sink(self.take())
        except BaseException as error:  # the reader's code, run in the socket's callback: its error ends its own pump
            self.fail(error)
            return
        if self._pending is not None:
            self._sink = None
            self._pause()
            self._wake()

    def _finish(self) -> None:
        line, self._line = self._line, None
        self.end_parsing()
        if line is None:
            return
        if self.is_keep_alive and not line.is_sending:
            if self._is_paused:
                line.resume()
            line.release()
        else:
            line.abort()

    def _pause(self) -> None:
        if self._line is not None and not self._is_paused:
            self._is_paused = True
            self._line.pause()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._heard = self._clock()
            if self._line is not None:
                self._line.resume()

    async def _wait(self) -> None:
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        except BaseException:
            self.close()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
