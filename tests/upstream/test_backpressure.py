"""Neither side is read faster than the other takes it, whoever is slow."""

from __future__ import annotations

import asyncio

import pytest

from gateway.protocol.faults import Fault, FaultKind
from tests.fakes.scripts import Close, Script, Send, raw

FLOOD = 50_000_000
PIECE = b"x" * 1_000_000


def flood() -> Script:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % FLOOD
    return raw(head, *(Send(PIECE) for _ in range(FLOOD // len(PIECE))))


async def settled(worker, answer) -> None:
    """Until the worker's writing has stood still for 100 ms."""
    (peer,) = worker._open
    still, last = 0, None
    while still < 10:
        await asyncio.sleep(0.01)
        now = (peer._transport.get_write_buffer_size(), len(answer.body))
        still, last = still + 1 if now == last else 0, now


async def test_flood_before_anybody_reads_is_bounded_and_then_whole(client, worker):
    worker.next(flood())
    answer = await client.open()
    await settled(worker, answer)
    assert len(answer.body) < 500_000
    assert len(await answer.read(FLOOD)) == FLOOD
    assert client.wire.idle_connections == 1


async def test_flood_into_a_blocked_sink_is_bounded_and_then_whole(client, worker, clock):
    gate, pieces = asyncio.Event(), []

    def sink(piece: bytes):
        pieces.append(len(piece))
        return gate.wait()

    worker.next(flood())
    answer = await client.open(first_byte_s=5, idle_s=5)
    pump = asyncio.ensure_future(answer.pump(sink))
    await settled(worker, answer)
    assert len(answer.body) + sum(pieces) < 1_000_000
    clock.advance(60)  # the sink's slowness is not the worker's
    await asyncio.sleep(0.3)
    assert not pump.done()
    gate.set()
    await pump
    assert sum(pieces) == FLOOD
    assert client.wire.idle_connections == 1


async def test_flood_into_a_sink_that_is_sometimes_slow_arrives_in_order(client, worker):
    body = b"".join(b"%08d" % number for number in range(250_000))
    got = bytearray()

    def sink(piece: bytes):
        got.extend(piece)
        return asyncio.sleep(0) if len(got) % 3 else None

    worker.next(raw(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), Send(body)))
    await (await client.open()).pump(sink)
    assert got == body


async def test_flood_above_what_is_gathered_is_bounded(client, worker):
    worker.next(flood())
    answer = await client.open(gather_bytes=100_000)
    await settled(worker, answer)
    assert 100_000 < len(answer.body) < 700_000
    answer.close()


async def test_worker_that_ends_while_the_sink_is_blocked_is_a_fault_after_its_pieces(client, worker):
    gate, pieces = asyncio.Event(), []

    def sink(piece: bytes):
        pieces.append(piece)
        return gate.wait()

    worker.next(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", Send(b"abc"), Close()))
    answer = await client.open()
    pump = asyncio.ensure_future(answer.pump(sink))
    await worker.until(lambda: pieces)
    gate.set()
    with pytest.raises(Fault) as caught:
        await pump
    assert (caught.value.kind, pieces) == (FaultKind.UPSTREAM_RESET, [b"abc"])
