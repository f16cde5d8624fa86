"""A cancelled exchange aborts its connection in whatever phase it is, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import random
import socket

import pytest

from gateway.upstream.wire import Origin
from tests.fakes.scripts import Pause, Script, Send, Stall, chunk, raw

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def cancelled(task: asyncio.Task) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancel_while_connecting_leaves_no_socket(wire, worker):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        with socket.create_connection(listener.getsockname()):  # fills the backlog: the next SYN is not answered
            origin = Origin(*listener.getsockname(), False)
            before = len(os.listdir("/proc/self/fd"))
            call = asyncio.ensure_future(wire.open(origin, b"", connect_s=5, first_byte_s=5, idle_s=5))
            await asyncio.sleep(0.02)
            await cancelled(call)
            await worker.until(lambda: len(os.listdir("/proc/self/fd")) == before, within_s=1)
    assert wire.open_connections == 0


@pytest.mark.parametrize("body", [b"{}", b"x" * 20_000_000])
async def test_cancel_before_the_head_aborts_the_connection(client, worker, body):
    worker.next(Script([Stall()], reads_body=len(body) < 10))
    call = asyncio.ensure_future(client.open(body))
    await worker.until(lambda: worker.requests)
    await cancelled(call)
    await worker.until(lambda: client.wire.open_connections == 0)
    if len(body) < 10:
        await worker.until(lambda: worker.closed_by_peer and worker.closed_by_peer[0].in_request)


@pytest.mark.parametrize("way", ["pump", "next", "read", "gather"])
async def test_cancel_in_the_body_aborts_the_connection(client, worker, way):
    worker.next(raw(CHUNKED + chunk(b"one"), Stall()))

    async def call():
        answer = await client.open(gather_bytes=1000 if way == "gather" else 0)
        if way == "pump":
            await answer.pump(lambda piece: None)
        while way == "next":
            await answer.next()
        await answer.read(1000)

    task = asyncio.ensure_future(call())
    await worker.until(lambda: worker.requests)
    await asyncio.sleep(0.02)
    await cancelled(task)
    await worker.until(lambda: worker.closed_by_peer)
    assert client.wire.open_connections == 0


async def test_cancel_while_the_sink_is_suspended_ends_the_sink_and_the_connection(client, worker):
    ended: list[str] = []

    async def suspended():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("sink")

    worker.next(raw(CHUNKED, Pause(0.01), Send(chunk(b"one")), Stall()))
    pump = asyncio.ensure_future((await client.open()).pump(lambda piece: suspended()))
    await asyncio.sleep(0.05)
    await cancelled(pump)
    assert ended == ["sink"]
    await worker.until(lambda: client.wire.open_connections == 0)


async def test_cancel_in_the_step_in_which_the_sink_suspends_leaves_no_coroutine(client, worker):
    async def suspended():
        await asyncio.Event().wait()

    def sink(piece: bytes):
        pump.cancel()
        return suspended()

    worker.next(raw(CHUNKED, Pause(0.01), Send(chunk(b"one")), Stall()))
    pump = asyncio.ensure_future((await client.open()).pump(sink))
    with pytest.raises(asyncio.CancelledError):
        await pump
    await worker.until(lambda: client.wire.open_connections == 0)


async def test_thousands_of_cancelled_calls_leave_the_pool_whole(client, worker):
    dice = random.Random(7)
    worker.default = Script([Send(CHUNKED), *[Send(chunk(b"piece")), Pause()] * 3, Send(b"0\r\n\r\n")])
    await client.open(gather_bytes=1000)
    before = len(os.listdir("/proc/self/fd"))

    async def call():
        await (await client.open(gather_bytes=dice.choice([0, 1000]))).pump(lambda piece: None)

    async def cancel_some(count: int):
        for _ in range(count):
            task = asyncio.ensure_future(call())
            for _ in range(dice.choice([0, 1, 2, 3, 5, 8])):
                await asyncio.sleep(0)
            if dice.random() < 0.3:
                await asyncio.sleep(0.003 * dice.random())
            task.cancel()
            await asyncio.wait([task])

    await asyncio.gather(*(cancel_some(100) for _ in range(20)))
    await worker.until(lambda: client.wire.open_connections == client.wire.idle_connections)
    await worker.until(lambda: worker.open_connections == client.wire.idle_connections)
    assert len(os.listdir("/proc/self/fd")) == before + 2 * (client.wire.idle_connections - 1)
    assert (await client.open(gather_bytes=1000)).body == b"piece" * 3
