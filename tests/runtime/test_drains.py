from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.routing.breaker import Breaker
from gateway.routing.options import BreakerOptions
from gateway.routing.snapshot import WorkerId, WorkerSpec, WorkerState
from gateway.routing.worker import Worker
from gateway.runtime.drains import BORN, DRAINS, LOST_S, Drains, DrainState, drain_states, judge
from gateway.runtime.shared import Shared
from tests.fakes.valkey import OwnValkey, until

W1, W2 = WorkerId("w1"), WorkerId("w2")
DRAINING, DRAINED, UNKNOWN = DrainState.DRAINING, DrainState.DRAINED, DrainState.UNKNOWN
NOW = 1_800_000_000_000
LONG_AGO = str(NOW - 60_000)


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path)
    yield server
    server.close()


class Process:
    """A gateway process with one draining worker."""

    def __init__(self, shared: Shared) -> None:
        self.revision: int | None = 7
        spec = WorkerSpec(W1, "w1", "http://127.0.0.1:1", state=WorkerState.DRAINING)
        self.worker = Worker(spec, Breaker(BreakerOptions(), lambda: 0.5))
        self.drains = Drains(shared, lambda: [self.worker], lambda: self.revision)


@asynccontextmanager
async def process(valkey: OwnValkey) -> AsyncIterator[Process]:
    shared = Shared(valkey.url)
    await shared.start()
    one = Process(shared)
    task = asyncio.create_task(one.drains.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait({task})
        await one.drains.close()
        await shared.close()


def age(valkey: OwnValkey) -> None:
    """Make the registry old enough to be believed."""
    with valkey.client() as client:
        client.hset(DRAINS, BORN, int((time.time() - 60) * 1000))


async def told_again(valkey: OwnValkey) -> None:
    """Wait until every process has said anew what it has."""
    with valkey.client() as client:
        before = client.hgetall(DRAINS)
        del before[BORN]
        await until(lambda: all(client.hget(DRAINS, process) != entry for process, entry in before.items()))


def state(valkey: OwnValkey, revision: int = 7) -> DrainState:
    return drain_states(valkey.url, [W1], revision)[W1]


async def test_worker_with_a_call_in_one_of_two_processes_is_drained_when_it_ends(valkey: OwnValkey) -> None:
    age(valkey)
    async with process(valkey) as one, process(valkey):
        one.worker.in_flight = 1
        await until(lambda: state(valkey) is DRAINING)
        await told_again(valkey)
        assert state(valkey) is DRAINING
        one.worker.in_flight = 0
        await until(lambda: state(valkey) is DRAINED)


async def test_worker_draining_in_a_newer_revision_waits_for_every_process_to_take_it_up(valkey: OwnValkey) -> None:
    age(valkey)
    async with process(valkey) as one, process(valkey) as other:
        one.revision = 8
        await until(lambda: state(valkey) is DRAINED)
        assert state(valkey, 8) is DRAINING
        other.revision = None
        await until(lambda: state(valkey) is DRAINING)
        other.revision = 8
        await until(lambda: state(valkey, 8) is DRAINED)


async def test_process_that_ends_no_longer_counts(valkey: OwnValkey) -> None:
    age(valkey)
    async with process(valkey):
        async with process(valkey) as other:
            other.revision = 6
            await until(lambda: state(valkey) is DRAINING)
        await until(lambda: state(valkey) is DRAINED)


async def test_redis_away_or_just_back_says_unknown(valkey: OwnValkey) -> None:
    age(valkey)
    async with process(valkey):
        await until(lambda: state(valkey) is DRAINED)
        valkey.stop()
        assert state(valkey) is UNKNOWN
        valkey.start()
        assert state(valkey) is UNKNOWN
        with valkey.client() as client:
            await until(lambda: client.hlen(DRAINS) == 2)
        assert state(valkey) is UNKNOWN  # others may not have entered again
        age(valkey)
        assert state(valkey) is DRAINED


async def test_process_crashed_is_dropped_from_redis_by_the_others(valkey: OwnValkey) -> None:
    age(valkey)
    with valkey.client() as client:
        client.hset(DRAINS, "crashed", f"{int((time.time() - LOST_S - 1) * 1000)} 7 w1")
        async with process(valkey):
            await until(lambda: not client.hexists(DRAINS, "crashed"))
            assert state(valkey) is DRAINED


def test_states_of_no_workers_ask_nobody() -> None:
    assert drain_states("redis://127.0.0.1:1", [], 7) == {}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({}, (UNKNOWN, UNKNOWN)),
        ({"one": f"{NOW} 7"}, (UNKNOWN, UNKNOWN)),
        ({BORN: str(NOW - 9_000), "one": f"{NOW} 7"}, (UNKNOWN, UNKNOWN)),
        ({BORN: LONG_AGO, "one": f"{NOW} 7"}, (DRAINED, DRAINED)),
        ({BORN: LONG_AGO, "one": f"{NOW} 8 w2"}, (DRAINED, DRAINING)),
        ({BORN: LONG_AGO, "one": f"{NOW} 6"}, (DRAINING, DRAINING)),
        ({BORN: LONG_AGO, "one": f"{NOW} 7", "two": f"{NOW - 9_000} 7 w1 w2"}, (DRAINING, DRAINING)),
        ({BORN: LONG_AGO, "one": f"{NOW} 7", "two": f"{NOW - 9_000} 7"}, (DRAINED, DRAINED)),
        ({BORN: LONG_AGO, "one": f"{NOW} 7", "gone": f"{NOW - 11_000} 6 w1"}, (DRAINED, DRAINED)),
    ],
)
def test_entries_of_processes_say_how_far_workers_are(
    entries: dict[str, str], expected: tuple[DrainState, DrainState]
) -> None:
    assert judge(entries, [W1, W2], 7, NOW) == dict(zip((W1, W2), expected, strict=True))
