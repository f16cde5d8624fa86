"""The recorder on a real Postgres: nothing lost, nothing twice, order kept, memory bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, replace
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from conversations.recorder import PostgresRecorder
from conversations.rows import encode
from gateway.pipeline.exchange import Attempt, Exchange, Outcome, Usage, UsageSource
from gateway.protocol.ids import new_uuid7
from gateway.routing.snapshot import HistoryMode, KeyId, PoolId, TeamId, WorkerId

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT_BYTES = 2**24
ARRIVED_UNIX_S = 1_790_000_000.25
LATER_THAN_A_TIMESTAMP = 9_224_318_384_800.0  # yet it fits into 64 bits


def exchange(number: int = 0, **changes: Any) -> Exchange:
    arrived_s = ARRIVED_UNIX_S + number / 1000
    made = Exchange(
        id=new_uuid7(arrived_s, lambda bits: number),
        request_id=f"req-{number}",
        arrived_unix_s=arrived_s,
        arrived_s=5.0,
        service="chat",
        outcome=Outcome.COMPLETED,
        history=HistoryMode.FULL,
    )
    return replace(made, **changes)


def dsn_of(host: str | None = None, port: int | None = None) -> str:
    known = connection.settings_dict
    return make_conninfo(
        dbname=known["NAME"],
        user=known["USER"],
        password=known["PASSWORD"],
        host=host or known["HOST"],
        port=port or known["PORT"],
    )


def rows(query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn_of(), autocommit=True) as client:
        cursor = client.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def recorded() -> list[str]:
    """Request ids in the order in which the rows were inserted."""
    return [request_id for (request_id,) in rows("SELECT request_id FROM conversations_exchange ORDER BY ctid")]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not is_so():
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(recorder: PostgresRecorder) -> AsyncIterator[PostgresRecorder]:
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    try:
        yield recorder
    finally:
        await recorder.close(5)
        await task


class Proxy:
    """A way to Postgres that can be cut, be silent, or end when the server has got a COMMIT and not yet answered it."""

    def __init__(self) -> None:
        self.is_silent = False
        self.swallowed_bytes = 0
        self.cuts_after_commit = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = connection.settings_dict
        server_reader, server_writer = await asyncio.open_connection(known["HOST"], int(known["PORT"]))
        self._writers |= {writer, server_writer}
        await asyncio.gather(self._pump(reader, server_writer, True), self._pump(server_reader, writer, False))
        self._writers -= {writer, server_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.is_silent:
                    self.swallowed_bytes += len(data)
                    continue
                if not is_client and self.cuts_after_commit and b"COMMIT" in data:
                    self.cuts_after_commit = False
                    break  # the server's "C" message: it is committed, and the client will not hear of it
                writer.write(data)
                await writer.drain()
        for one in tuple(self._writers):
            one.transport.abort()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    made = Proxy()
    await made.open()
    yield made
    await made.cut()


def recorder_through(proxy: Proxy) -> PostgresRecorder:
    return PostgresRecorder(dsn_of("127.0.0.1", proxy.port), limit_bytes=LIMIT_BYTES)


async def test_exchange_is_kept_with_all_that_happened() -> None:
    values: dict[str, Any] = {
        "team_id": TeamId(1),
        "team": "demo",
        "key_id": KeyId(2),
        "key": "app",
        "model": "chat-alias",
        "pool_id": PoolId(3),
        "pool": "deepseek-v3",
        "worker_id": WorkerId("w4"),
        "worker": "w1",
        "conversation_id": "c-1",
        "revision": 9,
        "is_streaming": True,
        "status": 200,
        "error_code": "none",
        "queued_s": 0.25,
        "ttft_s": 0.5,
        "duration_s": 2.0,
        "response_bytes": 10,
        "is_truncated": True,
        "request_body": b'{"a":1}',
        "response_body": b"data: {}\n\n",
    }
    attempts = [Attempt(WorkerId("w5"), "w2", 0.0, "reset"), Attempt(WorkerId("w4"), "w1", 0.1, "ok", 200, 0.2, 0.3)]
    full = exchange(usage=Usage(10, 20, 4, UsageSource.UPSTREAM), attempts=attempts, **values)
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        recorder.offer(full)
    assert (recorder.written, recorder.dropped, recorder.queued, recorder.queued_bytes) == (1, 0, 0, 0)
    assert rows(f"SELECT {', '.join(values)} FROM conversations_exchange") == [tuple(values.values())]
    rest = "id::text, extract(epoch FROM created_at)::float8, request_id, service, outcome, usage_source, attempts"
    assert rows(f"SELECT {rest}, input_tokens, output_tokens, cached_tokens FROM conversations_exchange") == [
        (
            full.id,
            ARRIVED_UNIX_S,
            "req-0",
            "chat",
            "completed",
            "upstream",
            [asdict(one) for one in attempts],
            10,
            20,
            4,
        )
    ]


async def test_history_mode_says_what_is_kept() -> None:
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        for number, mode in enumerate(HistoryMode):
            recorder.offer(exchange(number, history=mode, request_body=b"asked", response_body=b"", response_bytes=7))
    assert rows("SELECT request_body, response_body, response_bytes FROM conversations_exchange ORDER BY ctid") == [
        (b"asked", b"", 7),
        (None, None, 7),
    ]


async def test_bodies_keep_every_byte_and_texts_what_postgres_can_hold() -> None:
    body = b'{"a":"\\ud800 \x00 \xff\xfe ' + "𝒳漢".encode() + b'"}\\N\t\\.\n'
    odd = exchange(model="a\0b\ud800𝒳漢\\N\t", conversation_id="x" * 5000, request_body=body, response_body=body[::-1])
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        recorder.offer(odd)
    assert rows("SELECT model, length(conversation_id), request_body, response_body FROM conversations_exchange") == [
        ("a?b?𝒳漢\\N\t", 1000, body, body[::-1])
    ]


async def test_counts_beyond_a_bigint_are_kept_as_the_largest() -> None:
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        recorder.offer(exchange(usage=Usage(10**30, -5, 2**63 - 1, UsageSource.UPSTREAM)))
    assert rows("SELECT input_tokens, output_tokens, cached_tokens FROM conversations_exchange") == [
        (2**63 - 1, 0, 2**63 - 1)
    ]


async def test_exchange_offered_twice_is_one_row() -> None:
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        recorder.offer(exchange(1))
        await until(lambda: recorder.written == 1)
        for number in (1, 2, 1):
            recorder.offer(exchange(number))
    assert recorded() == ["req-1", "req-2"]


async def test_many_exchanges_are_written_in_order_without_waiting_for_the_interval() -> None:
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        for number in range(1700):
            recorder.offer(exchange(number, request_body=b"x" * 1500))
    assert recorded() == [f"req-{number}" for number in range(1700)]
    assert recorder.queued_bytes == 0


async def test_exchange_longer_than_a_batch_is_written() -> None:
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        for number in range(3):
            recorder.offer(exchange(number, request_body=b"x" * 3_000_000, response_body=b"y" * (number + 1)))
    assert rows("SELECT length(request_body), length(response_body) FROM conversations_exchange ORDER BY ctid") == [
        *((3_000_000, 1), (3_000_000, 2), (3_000_000, 3))
    ]


async def test_postgres_away_and_back_loses_nothing_and_keeps_the_order(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running(recorder_through(proxy)) as recorder:
        recorder.offer(exchange(0))
        await until(lambda: recorder.written == 1)
        await proxy.cut()
        for number in range(1, 700):
            recorder.offer(exchange(number))
        await until(lambda: recorder.is_failing)
        assert recorder.queued == 699
        await proxy.open()
        await until(lambda: recorder.written == 700)
        assert not recorder.is_failing
    assert recorded() == [f"req-{number}" for number in range(700)]
    messages = [record.message for record in caplog.records if record.name == "conversations.recorder"]
    assert messages == ["records wait for Postgres", "records go to Postgres again"]


async def test_connection_lost_after_the_commit_writes_nothing_twice(proxy: Proxy) -> None:
    async with running(recorder_through(proxy)) as recorder:
        proxy.cuts_after_commit = True
        for number in range(30):
            recorder.offer(exchange(number))
        await until(lambda: recorder.written == 30)
    assert not proxy.cuts_after_commit
    assert recorded() == [f"req-{number}" for number in range(30)]


async def test_missing_table_is_waited_for() -> None:
    rows("ALTER TABLE conversations_exchange RENAME TO elsewhere")
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        recorder.offer(exchange(1))
        await until(lambda: recorder.is_failing)
        rows("ALTER TABLE elsewhere RENAME TO conversations_exchange")
        await until(lambda: recorder.written == 1)
    assert recorded() == ["req-1"]


async def test_row_that_postgres_refuses_stops_no_other_and_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running(PostgresRecorder(dsn_of(), limit_bytes=LIMIT_BYTES)) as recorder:
        for number in range(40):
            arrived_s = LATER_THAN_A_TIMESTAMP if number in (7, 8, 39) else ARRIVED_UNIX_S
            recorder.offer(exchange(number, arrived_unix_s=arrived_s, request_body=b"content"))
    assert recorded() == [f"req-{number}" for number in range(40) if number not in (7, 8, 39)]
    assert (recorder.written, recorder.dropped) == (37, 3)
    fields = [record.__dict__["fields"] for record in caplog.records if record.message == "record refused by Postgres"]
    assert fields == [{"exchange": exchange(number).id, "sqlstate": "22008"} for number in (7, 8, 39)]


async def test_queue_takes_what_fits_and_drops_the_rest() -> None:
    size = len(encode(exchange(1)))
    recorder = PostgresRecorder(dsn_of(), limit_bytes=3 * size)
    for number in range(1, 6):
        recorder.offer(exchange(number))
    assert (recorder.queued, recorder.queued_bytes, recorder.dropped) == (3, 3 * size, 2)
    await recorder.close(5)
    assert recorded() == ["req-1", "req-2", "req-3"]


async def test_cancelled_run_leaves_the_queue_to_close(proxy: Proxy) -> None:
    recorder = recorder_through(proxy)
    proxy.is_silent = True
    task = asyncio.create_task(recorder.run())
    recorder.offer(exchange(1))
    await until(lambda: proxy.swallowed_bytes > 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await proxy.cut()
    proxy.is_silent = False
    await proxy.open()
    await recorder.close(5)
    assert recorded() == ["req-1"]


@pytest.mark.parametrize("is_connected", [True, False])
async def test_close_with_a_silent_postgres_keeps_its_deadline(proxy: Proxy, is_connected: bool) -> None:
    recorder = recorder_through(proxy)
    task = asyncio.create_task(recorder.run())
    if is_connected:
        recorder.offer(exchange(0))
        await until(lambda: recorder.written == 1)
    proxy.is_silent = True
    for number in range(1, 4):
        recorder.offer(exchange(number))
    await until(lambda: proxy.swallowed_bytes > 0)
    async with asyncio.timeout(2):
        await recorder.close(0.3)
        await task
    assert (recorder.queued, recorder.dropped) == (0, 3)
