"""A wire per test on both event loops, and a check after each test that nothing of it is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import uvloop

from gateway.upstream.egress import Egress
from gateway.upstream.wire import Wire
from tests.fakes.worker import FakeWorker
from tests.upstream.client import Client


def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Clock:
    """Real time plus what a test adds to it, so that a deadline of a minute passes at once."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead_s

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def wire(clock: Clock) -> AsyncIterator[Wire]:
    wire = Wire(egress=Egress(), clock=clock)
    yield wire
    await wire.close()
    assert wire.open_connections == wire.idle_connections == 0
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    assert names <= {"_Peer._serve"}


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


@pytest.fixture
def client(worker: FakeWorker, wire: Wire) -> Client:
    return Client(wire, worker)
