"""From finished calls to rows: the Recorder port on Postgres.

A call only encodes its row and puts it into a queue that is bounded by bytes; what does not fit is dropped and counted.
A background task moves the queue into Postgres in batches, each in one transaction: COPY into a temporary table, then
an insert that leaves out ids that are there. So a batch may be written again when nobody knows whether it arrived, and
the queue keeps it until it has.

    Postgres refuses the data   the batch is halved until the bad row stands alone; that one is dropped and counted
    anything else fails         the batch stays and is tried again after 0.1 to 5 s; the queue fills meanwhile
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

import psycopg
from psycopg import sql

from conversations.rows import COLUMNS, COPY_HEAD, COPY_TAIL, encode, exchange_id
from gateway.pipeline.exchange import Exchange
from gateway.routing.snapshot import HistoryMode

_log = logging.getLogger(__name__)

_INTERVAL_S = 0.25
_BATCH_ROWS = 2000
_BATCH_BYTES = 2**20  # joined and sent at once; a single row may be longer
_CONNECT_S = 5.0
_BATCH_DEADLINE_S = 30.0  # then the connection counts as lost
_BACKOFF_S = (0.1, 5.0)

_TABLE = sql.Identifier("conversations_exchange")
_STAGING = sql.Identifier("exchange_staging")
_NAMES = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
_CREATE = sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {}) ON COMMIT DELETE ROWS").format(_STAGING, _TABLE).as_bytes()
_COPY = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(_STAGING, _NAMES).as_bytes()
_INSERT = (
    sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2} ON CONFLICT (id) DO NOTHING")
    .format(_TABLE, _NAMES, _STAGING)
    .as_bytes()
)
_BAD_DATA = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)


class PostgresRecorder:
    """Implements pipeline.ports.Recorder. All methods belong to one event loop; `run` runs once."""

    def __init__(self, dsn: str, *, limit_bytes: int) -> None:
        self.dropped = 0  # no place, refused by Postgres, or left at the end
        self.written = 0
        self.queued_bytes = 0
        self._dsn = dsn
        self._limit_bytes = limit_bytes
        self._rows: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._closes_at_s: float | None = None  # loop time, once `close` was called
        self._has_ended = asyncio.Event()
        self._has_ended.set()
        self._connection: psycopg.AsyncConnection | None = None
        self._connecting: asyncio.Timeout | None = None
        self._failing_since_s: float | None = None

    @property
    def queued(self) -> int:
        """Rows not yet in Postgres."""
        return len(self._rows)

    @property
    def is_failing(self) -> bool:
        """Postgres did not take the last batch."""
        return self._failing_since_s is not None

    def offer(self, exchange: Exchange) -> None:
        """Encode a finished exchange and queue it, as its history mode says; never waits."""
        if exchange.history is HistoryMode.OFF:
            return
        row = encode(exchange)
        size = len(row)
        if self.queued_bytes + size > self._limit_bytes:
            self.dropped += 1
            return
        self.queued_bytes += size
        self._rows.append(row)
        if len(self._rows) == _BATCH_ROWS:
            self._wake.set()

    async def run(self) -> None:
        """Write what is offered every 250 ms or 2000 rows, until `close`. Cancelled, it leaves the queue as it is."""
        self._has_ended.clear()
        try:
            while self._closes_at_s is None:
                await self._pause(_INTERVAL_S)
                await self._drain(lambda: self._closes_at_s is None)
        finally:
            self._has_ended.set()

    async def close(self, deadline_s: float) -> None:
        """End `run`, write the rest and close the connection; what is left at the deadline is lost and counted."""
        loop = asyncio.get_running_loop()
        closes_at_s = self._closes_at_s = loop.time() + deadline_s
        cut = loop.call_at(closes_at_s, self._cut)
        self._wake.set()
        await self._has_ended.wait()
        await self._drain(lambda: loop.time() < closes_at_s)
        cut.cancel()
        await self._disconnect()
        if self._rows:
            self.dropped += len(self._rows)
            _log.error("records lost at the end", extra={"fields": {"records": len(self._rows)}})
            self._take(len(self._rows))

    async def _drain(self, may_go_on: Callable[[], bool]) -> None:
        backoff_s, longest_s = _BACKOFF_S
        while self._rows and may_go_on():
            batch = self._next_batch()
            try:
                refused = await self._write(batch)
            except (psycopg.Error, OSError) as error:  # TimeoutError is an OSError
                self._failed(error)
                await self._pause(backoff_s)
                backoff_s = min(backoff_s * 2, longest_s)
                continue
            backoff_s = _BACKOFF_S[0]
            self._take(len(batch))
            self.written += len(batch) - refused
            self.dropped += refused
            self._recovered()

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        for row in itertools.islice(self._rows, _BATCH_ROWS):
            size += len(row)
            if batch and size > _BATCH_BYTES:
                break
            batch.append(row)
        return batch

    def _take(self, count: int) -> None:
        for _ in range(count):
            self.queued_bytes -= len(self._rows.popleft())

    async def _write(self, batch: Sequence[bytes]) -> int:
        """Write the rows; returns how many Postgres refused for their data."""
        try:
            await self._transact(batch)
            return 0
        except _BAD_DATA as error:
            if len(batch) == 1:
                fields = {"exchange": exchange_id(batch[0]), "sqlstate": error.sqlstate}  # its text may quote the row
                _log.error("record refused by Postgres", extra={"fields": fields})
                return 1
        middle = len(batch) // 2
        return await self._write(batch[:middle]) + await self._write(batch[middle:])

    async def _transact(self, batch: Sequence[bytes]) -> None:
        pieces = (COPY_HEAD, *batch, COPY_TAIL)
        is_usable = False
        cut = asyncio.get_running_loop().call_later(_BATCH_DEADLINE_S, self._cut)
        try:
            connection = self._connection or await self._connect()
            async with connection.transaction(), connection.cursor() as cursor:
                async with cursor.copy(_COPY) as copy:
                    for piece in pieces if len(batch) == 1 else (b"".join(pieces),):  # one row may be very long
                        await copy.write(piece)
                await cursor.execute(_INSERT)
            is_usable = True
        except _BAD_DATA:
            is_usable = True  # the transaction is rolled back
            raise
        finally:
            cut.cancel()
            if not is_usable:  # failed or cancelled, nobody knows in the middle of what
                await self._disconnect()

    async def _connect(self) -> psycopg.AsyncConnection:
        try:
            async with asyncio.timeout(_CONNECT_S) as self._connecting:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._dsn, autocommit=True, application_name="igw recorder"
                )
        finally:
            self._connecting = None
        await self._connection.execute(_CREATE)
        return self._connection

    def _cut(self) -> None:
        """End a connection that does not answer, at once: on being cancelled the driver would first ask the server."""
        if self._connecting is not None:
            self._connecting.reschedule(0)
        with contextlib.suppress(psycopg.Error, OSError):
            if self._connection is not None:
                with socket.socket(fileno=os.dup(self._connection.fileno())) as same:
                    same.shutdown(socket.SHUT_RDWR)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not past a full batch or the deadline of `close`."""
        with contextlib.suppress(TimeoutError):
            until_s = asyncio.get_running_loop().time() + seconds
            async with asyncio.timeout_at(min(until_s, self._closes_at_s or until_s)):
                await self._wake.wait()
        self._wake.clear()

    def _failed(self, error: Exception) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = time.monotonic()
            fields = {
                "error": type(error).__name__,
                "sqlstate": getattr(error, "sqlstate", None),
                "queued": self.queued,
            }
            _log.warning("records wait for Postgres", extra={"fields": fields})

    def _recovered(self) -> None:
        if self._failing_since_s is not None:
            seconds = round(time.monotonic() - self._failing_since_s, 1)
            self._failing_since_s = None
            _log.info("records go to Postgres again", extra={"fields": {"after_s": seconds, "queued": self.queued}})
