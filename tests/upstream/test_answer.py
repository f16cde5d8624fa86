"""Reading an answer: every cut of it, every fault from the wire, deadlines, hostile answers."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.protocol.faults import Fault, FaultKind
from tests.fakes.scripts import (
    WRONG_FRAMING,
    Close,
    Pause,
    Reset,
    Script,
    Send,
    Stall,
    Wait,
    chat,
    chat_stream,
    chunk,
    cut_after,
    one_byte_at_a_time,
    raw,
    split_at,
    status,
    wrong_framing,
)

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM = chat_stream(["hel", "lo"], usage=(3, 2))


def body_of(script: Script) -> bytes:
    """The body in a script made of one head and one chunk a step."""
    chunks = [step.data for step in script.steps if isinstance(step, Send)][1:-1]
    return b"".join(data.partition(b"\r\n")[2][:-2] for data in chunks)


async def pumped(answer, **options) -> list[bytes]:
    pieces: list[bytes] = []
    await answer.pump(pieces.append, **options)
    return pieces


async def outcome(client, gather_bytes: int = 100_000) -> FaultKind | None:
    """Read an answer to its end: None, or the fault it ended with."""
    try:
        await (await client.open(gather_bytes=gather_bytes)).pump(lambda piece: None)
    except Fault as fault:
        return fault.kind
    return None


async def test_pump_hands_on_the_gathered_body_first_and_then_piece_by_piece(client, worker):
    gate = asyncio.Event()
    worker.next(
        raw(CHUNKED + chunk(b"one"), Wait(gate), Send(chunk(b"two") + chunk(b"three")), Pause(), Send(b"0\r\n\r\n"))
    )
    answer = await client.open()
    assert (answer.body, answer.is_complete) == (b"one", False)
    gate.set()
    assert await pumped(answer) == [b"one", b"twothree"]
    assert (answer.is_complete, client.wire.idle_connections) == (True, 1)


async def test_pump_of_a_complete_answer_hands_it_on_at_once(client, worker):
    worker.next(status(200, body=b"abc"))
    answer = await client.open(gather_bytes=10)
    assert await pumped(answer) == [b"abc"]


@pytest.mark.parametrize(("limit", "is_complete"), [(9, False), (10, True)])
async def test_gather_waits_for_the_body_up_to_its_limit(client, worker, limit, is_complete):
    gate = asyncio.Event()
    rest = [Pause(0.01), Send(chunk(b"67890"))]
    end = [Send(b"0\r\n\r\n")] if is_complete else [Wait(gate), Send(b"0\r\n\r\n")]
    worker.next(raw(CHUNKED + chunk(b"12345"), *rest, *end))
    answer = await client.open(gather_bytes=limit)
    assert (answer.body, answer.is_complete) == (b"1234567890", is_complete)
    gate.set()
    assert await pumped(answer) == [b"1234567890"]


@pytest.mark.parametrize(("limit", "fits"), [(9, False), (10, True)])
async def test_read_of_a_body_above_its_limit_is_a_protocol_fault(client, worker, limit, fits):
    worker.next(status(200, body=b"1234567890"))
    answer = await client.open()
    if fits:
        assert await answer.read(limit) == b"1234567890"
    else:
        with pytest.raises(Fault) as caught:
            await answer.read(limit)
        assert caught.value.kind is FaultKind.UPSTREAM_PROTOCOL


async def test_close_of_an_incomplete_answer_aborts_the_connection(client, worker):
    worker.next(raw(CHUNKED, Stall()))
    answer = await client.open()
    answer.close()
    answer.close()
    await worker.until(lambda: worker.closed_by_peer)
    assert client.wire.open_connections == 0
    with pytest.raises(Fault):
        await answer.next()


async def test_answer_one_byte_at_a_time_is_the_same(client, worker):
    worker.next(one_byte_at_a_time(STREAM), one_byte_at_a_time(chat("hello")))
    assert b"".join(await pumped(await client.open())) == body_of(STREAM)
    assert (await client.open(gather_bytes=10_000)).body == chat("hello").data.partition(b"\r\n\r\n")[2]
    assert worker.connections == 1


@pytest.mark.parametrize("gather_bytes", [0, 10_000])
async def test_stream_split_at_every_offset_is_the_same(client, worker, gather_bytes):
    for offset in range(1, len(STREAM.data)):
        worker.next(split_at(offset, STREAM))
        answer = await client.open(gather_bytes=gather_bytes)
        assert b"".join(await pumped(answer)) == body_of(STREAM)
    assert worker.connections == 1


@pytest.mark.parametrize("end", [Close(), Reset()])
@pytest.mark.parametrize("gather_bytes", [0, 10_000])
async def test_stream_cut_at_any_offset_is_a_reset_after_what_came_before(client, worker, gather_bytes, end):
    whole, size = body_of(STREAM), len(STREAM.data)
    for offset in [*range(1, size, 37), size - 1]:
        worker.next(cut_after(offset, STREAM, end))
        pieces: list[bytes] = []
        with pytest.raises(Fault) as caught:
            await (await client.open(gather_bytes=gather_bytes)).pump(pieces.append)
        assert caught.value.kind is FaultKind.UPSTREAM_RESET
        assert whole.startswith(b"".join(pieces))
    assert client.wire.open_connections == 0


async def test_fault_in_mid_stream_comes_after_the_pieces_before_it(client, worker):
    gate = asyncio.Event()
    worker.next(raw(CHUNKED, Wait(gate), Send(chunk(b"good") + b"bad\n")))
    answer = await client.open()
    gate.set()
    pieces: list[bytes] = []
    with pytest.raises(Fault) as caught:
        await answer.pump(pieces.append)
    assert (caught.value.kind, pieces) == (FaultKind.UPSTREAM_PROTOCOL, [b"good"])


async def test_body_without_a_length_ends_cleanly_with_the_connection(client, worker):
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    worker.next(raw(head, Pause(), Send(b"abc"), Close()), raw(head, Close()), raw(head + b"abc", Pause(0.01), Close()))
    assert await pumped(await client.open()) == [b"abc"]
    assert (await client.open(gather_bytes=10)).body == b""
    assert (await client.open(gather_bytes=10)).body == b"abc"
    assert client.wire.open_connections == 0


async def test_body_without_a_length_that_is_reset_is_a_fault(client, worker):
    gate = asyncio.Event()
    worker.next(raw(b"HTTP/1.1 200 OK\r\n\r\nabc", Wait(gate), Reset()))
    answer = await client.open()
    gate.set()
    with pytest.raises(Fault) as caught:
        await answer.pump(lambda piece: None)
    assert caught.value.kind is FaultKind.UPSTREAM_RESET


@pytest.mark.parametrize("end", [Close(), Reset()])
async def test_end_of_a_fresh_connection_before_the_head_is_a_reset(client, worker, end):
    worker.next(Script([end]), raw(b"HTTP/1.1 200", end))
    for _ in range(2):
        with pytest.raises(Fault) as caught:
            await client.open()
        assert caught.value.kind is FaultKind.UPSTREAM_RESET
    assert len(worker.requests) == 2


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("kind", WRONG_FRAMING)
async def test_wrong_framing_is_a_protocol_fault_and_the_connection_is_never_reused(client, worker, kind, is_split):
    script = wrong_framing(kind)
    if is_split and len(script.data) < 1000:
        script = one_byte_at_a_time(script)
    worker.next(script)
    ends = {await outcome(client)}
    if is_split and kind in ("bytes after the end", "bytes after a closing answer", "second answer", "body with 204"):
        ends -= {None}  # in pieces, what follows a complete answer belongs to nobody
    assert ends <= {FaultKind.UPSTREAM_PROTOCOL}
    await worker.until(lambda: client.wire.open_connections == 0)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * 99 + b"content-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 65_000 + b"\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nhi",
        CHUNKED + b"2;name=value\r\nhi\r\n0\r\ntrailer: dropped\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhi",
        b"HTTP/1.1 599 Odd\r\nempty:\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
    ],
)
async def test_unusual_but_valid_answer_within_the_limits_is_taken(client, worker, data):
    worker.next(raw(data, Close()))
    answer = await client.open(gather_bytes=100)
    assert answer.body == b"hi"
    assert (b"trailer", b"dropped") not in answer.headers


@pytest.mark.parametrize("gather_bytes", [0, 1000])
async def test_no_answer_within_the_first_byte_deadline_is_a_fault(client, worker, clock, gather_bytes):
    worker.next(Script([Stall()]))
    call = asyncio.ensure_future(client.open(first_byte_s=30, gather_bytes=gather_bytes))
    await worker.until(lambda: worker.requests)
    clock.advance(30)
    with pytest.raises(Fault) as caught:
        await call
    assert caught.value.kind is FaultKind.FIRST_BYTE_TIMEOUT
    await worker.until(lambda: worker.closed_by_peer)


async def test_head_without_a_body_byte_runs_into_the_first_byte_deadline_in_the_pump(client, worker, clock):
    worker.next(raw(CHUNKED, Stall()))
    answer = await client.open(first_byte_s=30, idle_s=5)
    clock.advance(29)
    pump = asyncio.ensure_future(answer.pump(lambda piece: None))
    await asyncio.sleep(0.3)
    assert not pump.done()
    clock.advance(1)
    with pytest.raises(Fault) as caught:
        await pump
    assert caught.value.kind is FaultKind.FIRST_BYTE_TIMEOUT


async def test_silence_in_the_body_runs_into_the_idle_deadline(client, worker, clock):
    worker.next(raw(CHUNKED + chunk(b"one"), Stall()))
    answer = await client.open(first_byte_s=1, idle_s=30)
    pump = asyncio.ensure_future(pumped(answer))
    clock.advance(29)
    await asyncio.sleep(0.3)
    assert not pump.done()
    clock.advance(1)
    with pytest.raises(Fault) as caught:
        await pump
    assert caught.value.kind is FaultKind.IDLE_TIMEOUT


async def test_silence_while_gathering_runs_into_the_idle_deadline(client, worker, clock):
    worker.next(raw(CHUNKED + chunk(b"one"), Stall()))
    call = asyncio.ensure_future(client.open(idle_s=5, gather_bytes=1000))
    await worker.until(lambda: worker.requests)
    await asyncio.sleep(0.05)
    clock.advance(5)
    with pytest.raises(Fault) as caught:
        await call
    assert caught.value.kind is FaultKind.IDLE_TIMEOUT


async def test_each_byte_puts_the_idle_deadline_off(client, worker, clock):
    gates = [asyncio.Event() for _ in range(3)]
    steps = [step for gate in gates for step in (Wait(gate), Send(chunk(b"x")))]
    worker.next(raw(CHUNKED + chunk(b"x"), *steps, Send(b"0\r\n\r\n")))
    answer = await client.open(idle_s=30)
    assert await answer.next() == b"x"
    for gate in gates:
        clock.advance(20)
        await asyncio.sleep(0.26)  # a sweep
        gate.set()
        assert await answer.next() == b"x"
    assert await answer.next() == b""


@pytest.mark.parametrize("is_gathered", [True, False])
async def test_sink_that_raises_ends_the_pump_and_the_connection(client, worker, is_gathered):
    def fail(piece):
        raise LookupError("sink")

    first = chunk(b"one") if is_gathered else b""
    worker.next(raw(CHUNKED + first, Pause(0.01), Send(chunk(b"two")), Stall()))
    with pytest.raises(LookupError):
        await (await client.open()).pump(fail)
    await worker.until(lambda: worker.closed_by_peer)
    assert client.wire.open_connections == 0


async def test_sink_that_raises_on_the_last_piece_ends_the_pump_and_keeps_the_connection(client, worker):
    def fail(piece):
        raise LookupError("sink")

    worker.next(raw(CHUNKED, Pause(0.01), Send(chunk(b"all") + b"0\r\n\r\n")))
    with pytest.raises(LookupError):
        await (await client.open()).pump(fail)
    assert client.wire.idle_connections == 1


def mutated(data: bytes, dice: random.Random) -> bytes:
    """`data` with one to three bytes replaced, removed, repeated, swapped or inserted, or cut."""
    mutant = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(mutant))
        to = min(len(mutant), at + dice.randint(1, 20))
        kind = dice.randrange(6)
        if kind == 0:
            mutant[at] = dice.randrange(256)
        elif kind == 1:
            del mutant[at:to]
        elif kind == 2:
            mutant[at:at] = mutant[at:to]
        elif kind == 3:
            mutant[at:at] = dice.choice([b"\r\n", b"\n", b"\x00", b"0\r\n\r\n", b":", b" ", b"content-length: 3\r\n"])
        elif kind == 4:
            mutant[at:to] = mutant[at:to][::-1]
        else:
            del mutant[at:]
        if not mutant:
            break
    return bytes(mutant)


@pytest.mark.parametrize("seed", range(3))
async def test_mutated_answers_end_in_a_body_or_a_fault_and_leave_the_pool_whole(client, worker, seed):
    dice = random.Random(seed)
    originals = [chat("hello").data, STREAM.data, b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + status(404).data]
    async with asyncio.timeout(60):
        for _ in range(700):
            data = mutated(dice.choice(originals), dice)
            cut = dice.randint(0, len(data))
            worker.next(Script([Send(data[:cut]), Pause(), Send(data[cut:]), Pause(), Close()]))
            end = await outcome(client, gather_bytes=dice.choice([0, 100_000]))
            assert end in (None, FaultKind.UPSTREAM_PROTOCOL, FaultKind.UPSTREAM_RESET)
        await worker.until(lambda: client.wire.open_connections == 0)
    worker._scripts.clear()
    assert (await client.open(gather_bytes=1000)).status == 200
