"""The client leaves, in every phase of a call: the worker's connection is closed at once and every lease is back."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.pipeline.exchange import Outcome
from gateway.routing.options import QueueOptions, TimeoutOptions
from tests.fakes.scripts import Script, Send, Stall, chat_stream, status
from tests.fakes.worker import FakeWorker
from tests.pipeline.rig import pool_of, running

ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
STREAM = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
HEAD = Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
LONG = TimeoutOptions()


@pytest.mark.parametrize(
    ("body", "script", "reads"),
    [
        (ASK, Script([Stall()]), 0),
        (STREAM, Script([Stall()]), 0),
        (STREAM, Script([HEAD, Stall()]), 0),
        (STREAM, Script([*chat_stream(["a", "b"]).steps[:3], Stall()]), 1),
        (STREAM, chat_stream(["a"] * 400, gap_s=0.01), 5),
    ],
    ids=["not streamed", "before the head", "before the first event", "silent", "flowing"],
)
async def test_client_that_leaves_closes_the_worker_connection(body: bytes, script: Script, reads: int) -> None:
    async with FakeWorker(script) as first, FakeWorker() as second:
        async with running(pool_of(first, second, timeouts=LONG)) as rig:
            reader, writer = await rig.connect(body)
            await first.until(lambda: first.requests)
            for _ in range(reads):
                await reader.readuntil(b"\n\n")

            left_s = time.monotonic()
            writer.transport.abort()
            await first.until(lambda: first.closed_by_peer)

            assert first.closed_by_peer[0].at_s - left_s < 0.5  # the figure itself is measured by the benchmark
            exchange = await rig.ended()
            assert (exchange.outcome, exchange.error_code) == (Outcome.CLIENT_CLOSED, "client_gone")
            assert [attempt.outcome for attempt in exchange.attempts] == ["cancelled"]
            assert len(second.requests) == 0
            assert rig.is_idle()


@pytest.mark.parametrize("body", [ASK, STREAM], ids=["whole", "stream"])
async def test_client_of_another_server_is_answered_and_missed(body: bytes) -> None:
    async with FakeWorker() as worker:
        async with running(pool_of(worker, timeouts=LONG), protocol=HttpToolsProtocol) as rig:
            answer = await rig.post(body)
            worker.next(Script([HEAD, Stall()]))
            _, writer = await rig.connect(body)
            await worker.until(lambda: len(worker.requests) == 2)

            writer.transport.abort()
            await worker.until(lambda: worker.closed_by_peer)

            assert (answer.status_code, "lo" in answer.text) == (200, True)
            assert (await rig.ended(2)).outcome is Outcome.CLIENT_CLOSED
            assert rig.is_idle()


async def test_client_that_leaves_the_queue_never_reaches_a_worker() -> None:
    queue = QueueOptions(size=5, timeout_s=30)
    async with FakeWorker(Script([Stall()])) as worker:
        async with running(pool_of(worker, timeouts=LONG, max_in_flight=1, queue=queue)) as rig:
            _, holder = await rig.connect(ASK)
            await worker.until(lambda: worker.requests)
            _, writer = await rig.connect(ASK)
            pool = next(iter(rig.table.pools()))
            await rig.until(lambda: pool.waiting == 1)

            writer.transport.abort()

            assert (await rig.ended()).outcome is Outcome.CLIENT_CLOSED
            assert (pool.waiting, pool.in_flight, len(worker.requests)) == (0, 1, 1)
            holder.transport.abort()
            await rig.until(rig.is_idle)


async def test_client_that_leaves_while_its_body_is_read_costs_nothing() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        host, port = rig.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {rig.key}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{".encode())
        await rig.until(lambda: rig.plane.running)

        writer.transport.abort()

        assert (await rig.ended()).outcome is Outcome.CLIENT_CLOSED
        assert (len(worker.requests), rig.is_idle()) == (0, True)


async def test_many_clients_that_leave_leave_nothing_behind() -> None:
    async with FakeWorker(Script([HEAD, Stall()])) as worker, running(pool_of(worker, timeouts=LONG)) as rig:
        tasks = len(asyncio.all_tasks())
        for _ in range(10):
            writers = [(await rig.connect(STREAM))[1] for _ in range(20)]
            await rig.until(lambda: len(rig.plane.running) == 20)
            for writer in writers:
                writer.transport.abort()
            await rig.until(rig.is_idle)

        assert len(rig.exchanges) == 200
        await worker.until(lambda: worker.open_connections == 0)
        await rig.until(lambda: rig.wire.open_connections == 0)
        await rig.until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_client_that_does_not_read_a_whole_answer_is_cut_too() -> None:
    body = b'{"choices":[],"pad":"' + b"x" * 240_000 + b'"}'
    async with FakeWorker(status(200, body=body)) as worker:
        async with running(pool_of(worker, timeouts=LONG), client_idle_s=0.5) as rig:
            host, port = rig.url.removeprefix("http://").split(":")
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            deaf.connect((host, int(port)))
            await rig.until(lambda: rig.connections)
            rig.shrink_send_buffers()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {rig.key}\r\n"
            deaf.sendall(f"{head}content-type: application/json\r\ncontent-length: {len(ASK)}\r\n\r\n".encode() + ASK)

            exchange = await rig.ended()

            assert (exchange.outcome, exchange.error_code) == (Outcome.CLIENT_CLOSED, "slow_reader")
            assert rig.is_idle()
            await rig.until(lambda: not rig.connections)
            deaf.close()


async def test_client_that_does_not_read_is_cut_and_holds_little_memory() -> None:
    piece = "x" * 60_000
    async with FakeWorker(chat_stream([piece] * 2000)) as worker:
        async with running(pool_of(worker, timeouts=LONG), client_idle_s=0.5) as rig:
            _, writer = await rig.connect(STREAM)
            writer.transport.pause_reading()

            exchange = await rig.ended()

            assert (exchange.outcome, exchange.error_code) == (Outcome.CLIENT_CLOSED, "slow_reader")
            assert exchange.response_bytes < 20 * 2**20
            await worker.until(lambda: worker.closed_by_peer)
            assert rig.is_idle()
            writer.transport.abort()
