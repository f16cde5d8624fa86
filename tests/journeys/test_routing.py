"""Workers die, freeze, flap and are too few, while apps go on calling the running gateway."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from gateway.launch.process import free_port
from tests.fakes.scripts import Script, Stall, Wait, chat, status
from tests.fakes.worker import FakeWorker
from tests.journeys.load import Results, load
from tests.journeys.stack import ROOT, Stack, ask, until
from tests.journeys.test_calls import pool, serve_model

FAST_HEALTH = {"interval_s": 1.0}


@contextmanager
def demo_worker(port: int, first_byte_ms: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "manage.py", "demo_worker", "--port", str(port), "--first-byte-ms", str(first_byte_ms)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(port))
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def test_worker_killed_and_returned_costs_no_call_and_serves_again_within_three_seconds(
    gateway: Stack, worker: FakeWorker
) -> None:
    port = free_port()
    worker.default = chat(delay_s=0.25)
    results = Results()
    with demo_worker(port, 250) as victim:
        serve_model(gateway, gateway.operator, pool("w5", f"http://127.0.0.1:{port}", worker.url, health=FAST_HEALTH))
        calls = ask("w5", max_tokens=1)
        running = threading.Thread(target=lambda: asyncio.run(_into(results, gateway, calls, 40, 11)))
        start = time.monotonic()
        running.start()
        until(lambda: time.monotonic() - start > 2)
        victim.kill()
        victim.wait()
        until(lambda: time.monotonic() - start > 5)
        with demo_worker(port, 250):
            back_s = time.monotonic() - start
            running.join()
    assert results.statuses == {200: len(results.calls)}
    assert results.workers(back_s, back_s + 3)["w1"] > 0


async def _into(results: Results, gateway: Stack, body: dict[str, object], per_s: float, for_s: float) -> None:
    await load(gateway, gateway.operator, body, per_s, for_s, results=results)


def test_black_hole_costs_no_call_and_is_hardly_asked(gateway: Stack, worker: FakeWorker) -> None:
    with FakeWorker.in_thread() as hole:
        hole.default = status(503)
        serve_model(gateway, gateway.operator, pool("hole", hole.url, worker.url, policy="least_requests"))
        results = asyncio.run(load(gateway, gateway.operator, ask("hole"), 60, 4))
    assert results.statuses == {200: len(results.calls)}
    trials = 2 * 3  # in 4 s each process tries again after 1 s and 2 s more, give or take the jitter
    assert len(hole.requests) <= 2 * 5 + trials


def test_frozen_worker_is_avoided_and_costs_no_call(gateway: Stack, worker: FakeWorker) -> None:
    with FakeWorker.in_thread() as frozen:
        frozen.default = Script([Stall()])
        timeouts = {"first_byte_s": 1.0}
        serve_model(gateway, gateway.operator, pool("frozen", frozen.url, worker.url, timeouts=timeouts))
        results = asyncio.run(load(gateway, gateway.operator, ask("frozen"), 40, 4))
    assert results.statuses == {200: len(results.calls)}
    assert len(frozen.requests) < len(results.calls) / 4


def test_flapping_worker_costs_no_call(gateway: Stack, worker: FakeWorker) -> None:
    with FakeWorker.in_thread() as flapping:
        flapping.default = lambda request: status(503) if int(time.monotonic() / 0.4) % 2 else chat()
        serve_model(gateway, gateway.operator, pool("flapping", flapping.url, worker.url, policy="round_robin"))
        results = asyncio.run(load(gateway, gateway.operator, ask("flapping"), 40, 4))
    assert results.statuses == {200: len(results.calls)}


def test_total_outage_is_not_amplified(gateway: Stack) -> None:
    with FakeWorker.in_thread() as one, FakeWorker.in_thread() as other, FakeWorker.in_thread() as third:
        for each in (one, other, third):
            each.default = status(503)
        serve_model(gateway, gateway.operator, pool("outage", one.url, other.url, third.url, policy="round_robin"))
        results = asyncio.run(load(gateway, gateway.operator, ask("outage"), 60, 5))
        attempts = sum(len(each.requests) for each in (one, other, third))
    assert set(results.statuses) <= {502, 503}
    assert attempts <= 1.25 * len(results.calls)


def test_refusal_is_known_to_both_processes_and_the_later_deadline_stands(gateway: Stack, worker: FakeWorker) -> None:
    """Field case FC-11: a second refusal without a hint neither shortens the rest nor is shortened by the first."""
    with FakeWorker.in_thread(status(429)) as tired:
        tired.next(status(429, headers={"retry-after": "1"}))
        for model, url in (("tired", tired.url), ("fresh", worker.url)):
            serve_model(gateway, gateway.operator, pool(model, url))
        made = gateway.api("POST", "/groups", {"id": "rested", "members": ["tired", "fresh"]})
        assert made.status_code == 201
        until(lambda: all(gateway.status("/v1/models/group/rested", gateway.operator) == 200 for _ in range(8)), 3)
        began = time.monotonic()
        assert gateway.chat(gateway.operator, ask("tired")).headers["retry-after"] == "1"
        until(lambda: time.monotonic() - began > 0.25)
        gateway.chat(gateway.operator, ask("tired"))
        until(lambda: time.monotonic() - began > 0.75)
        asked = len(tired.requests)
        until(lambda: _winners(gateway) == {"fresh"}, 1)
        until(lambda: time.monotonic() - began > 3)
        assert _winners(gateway) == {"fresh"}
        assert len(tired.requests) == asked
        listed = gateway.api("GET", "/fleet?limit=200").json()["items"]
        (item,) = [each for each in listed if each["model"] == "tired"]
        assert (item["rest"], item["rests_since"] is not None) == ("rate limit", True)


def _winners(gateway: Stack) -> set[str]:
    return {gateway.chat(gateway.operator, ask("group/rested")).headers["x-igw-model"] for _ in range(8)}


def test_draining_worker_finishes_its_call_and_is_drained_then(gateway: Stack, worker: FakeWorker) -> None:
    gate = threading.Event()
    with FakeWorker.in_thread(Script([Wait(gate), *chat().steps])) as leaving:
        serve_model(gateway, gateway.operator, pool("drained", leaving.url, worker.url, policy="passthrough"))
        answers: list[httpx.Response] = []
        running = threading.Thread(target=lambda: answers.append(gateway.chat(gateway.operator, ask("drained"))))
        running.start()
        leaving.wait_until(lambda: leaving.requests)
        assert gateway.api("POST", "/pools/drained/workers/w1/drain").status_code == 200
        until(lambda: gateway.chat(gateway.operator, ask("drained")).headers["x-igw-worker"] == "w2", 3)
        assert _state(gateway) == "draining"
        gate.set()
        running.join()
        assert answers[0].status_code == 200
        until(lambda: _state(gateway) == "drained", 12)
        assert len(leaving.requests) == 1


def _state(gateway: Stack) -> str:
    items = gateway.api("GET", "/fleet?limit=200").json()["items"]
    return str(next(each["state"] for each in items if (each["model"], each["worker"]) == ("drained", "w1")))


@pytest.mark.parametrize("times", [1, 4])
def test_overload_keeps_goodput_and_refuses_with_retry_after(gateway: Stack, times: int) -> None:
    """Capacity: two workers with 3 places and 0.1 s a call, so 60 calls a second."""
    with FakeWorker.in_thread(chat(delay_s=0.1)) as one, FakeWorker.in_thread(chat(delay_s=0.1)) as other:
        described = pool(f"overload{times}", one.url, other.url)
        for each in described["workers"]:  # type: ignore[attr-defined]
            each["max_in_flight"] = 3
        serve_model(gateway, gateway.operator, described)
        results = asyncio.run(load(gateway, gateway.operator, ask(f"overload{times}"), 60 * times, 4))
    good = [call for call in results.calls if call.status == 200]
    refused = [call for call in results.calls if call.status != 200]
    assert {call.status for call in refused} <= {429}
    assert all(call.retry_after is not None for call in refused)
    assert len(good) >= 0.85 * 60 * 4  # of what two processes on a shared machine can start in time
