"""How workers are selected and calls admitted, seen from the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter

import httpx
import pytest

from gateway.policies.registry import POLICIES
from gateway.routing.health import Health, HealthView
from gateway.routing.options import QueueOptions
from gateway.routing.snapshot import PolicySpec, WorkerId
from tests.fakes.scripts import Reset, Script, Stall, Wait, chat_stream, status
from tests.fakes.worker import FakeWorker
from tests.pipeline.rig import pool_of, running

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RAW = json.dumps(ASK).encode()
LEAST = PolicySpec("least_requests", POLICIES["least_requests"].options())
NO_QUEUE = QueueOptions(size=0)


async def test_two_equal_workers_share_six_requests_evenly():
    async with FakeWorker() as a, FakeWorker() as b, running(pool_of(a, b)) as rig:
        for _ in range(6):
            await rig.post(ASK)
        assert (len(a.requests), len(b.requests)) == (3, 3)


async def test_unhealthy_worker_leaves_all_traffic_to_the_other():
    async with FakeWorker() as a, FakeWorker() as b, running(pool_of(a, b)) as rig:
        rig.table.set_health({WorkerId("m-w1"): HealthView(Health.UNHEALTHY)}, 0)
        for _ in range(4):
            await rig.post(ASK)
        assert (len(a.requests), len(b.requests)) == (0, 4)


async def test_slow_stream_sends_the_next_requests_to_the_idle_worker():
    gate = asyncio.Event()
    async with FakeWorker() as a, FakeWorker() as b, running(pool_of(a, b, policy=LEAST)) as rig:
        a.next(Script([*chat_stream(["x"]).steps[:2], Wait(gate), *chat_stream(["x"]).steps[2:]]))
        slow = asyncio.create_task(rig.post({**ASK, "stream": True}))
        await a.until(lambda: a.requests)
        for _ in range(2):
            await rig.post(ASK)
        assert (len(a.requests), len(b.requests)) == (1, 2)
        gate.set()
        await slow


@pytest.mark.parametrize("part", [{"type": "hologram", "x": 1}, {"type": "text"}, {"text": "no type"}])
async def test_unknown_parts_pass_with_their_bytes_unchanged(part: dict[str, object]):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}, indent=1).encode()
    async with FakeWorker() as a, running(pool_of(a)) as rig:
        assert (await rig.post(body)).status_code == 200
        assert a.requests[0].body == body


async def test_worker_gone_but_still_marked_healthy_costs_no_call_and_asks_for_one_probe_each():
    async with FakeWorker() as a, FakeWorker() as b, running(pool_of(a, b)) as rig:
        await a.stop()
        answers = [await rig.post(ASK) for _ in range(4)]
        assert Counter(answer.status_code for answer in answers) == {200: 4}
        assert set(rig.nudges) == {"m-w1"}


async def test_gateway_with_one_place_refuses_the_second_call_at_once():
    async with FakeWorker(Script([Stall()])) as a, running(pool_of(a), max_calls=1) as rig:
        _, writer = await rig.connect(RAW)
        await a.until(lambda: a.requests)
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "router_overloaded")
        assert answer.headers["retry-after"] == "1"
        writer.close()
        await rig.until(rig.is_idle)


async def test_service_with_one_place_refuses_its_second_call():
    async with FakeWorker(Script([Stall()])) as a, running(pool_of(a), by_service={"chat": 1}) as rig:
        _, writer = await rig.connect(RAW)
        await a.until(lambda: a.requests)
        answer = await rig.post(ASK)
        message = "The gateway is at its limit of chat calls at once."
        assert (answer.status_code, answer.json()["error"]["message"]) == (429, message)
        writer.close()
        await rig.until(rig.is_idle)


async def test_body_over_the_cap_is_told_so_even_when_no_place_is_free():
    async with FakeWorker(Script([Stall()])) as a, running(pool_of(a), max_calls=1, body_limit=1000) as rig:
        _, writer = await rig.connect(RAW)
        await a.until(lambda: a.requests)
        assert (await rig.post(b"x" * 2000)).status_code == 413
        writer.close()


async def test_early_refusals_leave_no_place_taken():
    async with FakeWorker() as a, running(pool_of(a), body_limit=1000) as rig:
        for _ in range(100):
            statuses = [
                (await rig.post(body)).status_code
                for body in (b"{", b"x" * 2000, b'{"model":"m"}', json.dumps({**ASK, "model": "x"}).encode())
            ]
            assert statuses == [400, 413, 400, 404]
        assert (rig.envelope.calls, rig.envelope.bytes, rig.is_idle()) == (0, 0, True)


async def test_client_gone_while_its_call_waits_leaves_the_queue_at_once():
    queue = QueueOptions(size=2, timeout_s=30)
    async with FakeWorker(Script([Stall()])) as a, running(pool_of(a, caps=1, queue=queue)) as rig:
        (pool,) = rig.table.pools()
        _, first = await rig.connect(RAW)
        await a.until(lambda: a.requests)
        _, second = await rig.connect(RAW)
        await rig.until(lambda: pool.waiting == 1)
        second.close()
        await rig.until(lambda: pool.waiting == 0)
        first.close()
        await rig.until(rig.is_idle)


async def test_every_way_out_gives_the_places_back():
    ways = [status(500), Script([Reset()]), Script([Stall()]), chat_stream(["a"], done=False, finish=False)]
    async with FakeWorker() as a, running(pool_of(a, caps=1, queue=NO_QUEUE)) as rig:
        for way in ways:
            a.next(way)
            stream = {"stream": True} if way is ways[-1] else {}
            with contextlib.suppress(httpx.RemoteProtocolError):  # a stream that broke is cut
                await rig.post({**ASK, **stream})
            await rig.until(rig.is_idle)
        assert (await rig.post(ASK)).status_code == 200
