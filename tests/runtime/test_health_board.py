from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.routing.health import UNSEEN, Health, HealthView
from gateway.routing.snapshot import WorkerId
from gateway.routing.worker import LoadReport
from gateway.runtime.health_board import (
    BOARD,
    CHANNEL,
    LOADS,
    NUDGES,
    TICK,
    HealthBoard,
    RedisNudge,
    decode,
    encode,
    encode_loads,
)
from gateway.runtime.shared import Shared
from tests.fakes.valkey import OwnValkey, until

GOOD = HealthView(Health.HEALTHY, "status 200", 1_800_000_000.0, 1.5)
BAD = HealthView(Health.UNHEALTHY, "connection refused", 1_800_000_001.0, 0.2)


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path)
    yield server
    server.close()


class Fleet:
    """Writes the board as workers/fleet does."""

    def __init__(self, valkey: OwnValkey) -> None:
        self._client = valkey.client()

    def tick(self, at: float | None = None, **views: HealthView) -> None:
        entries = {worker: encode(view) for worker, view in views.items()}
        if entries:
            self._client.hset(BOARD, mapping={worker: json.dumps(entry) for worker, entry in entries.items()})
            self._client.publish(CHANNEL, json.dumps(entries))
        self._client.set(TICK, at or time.time())

    def report(self, reports: dict[WorkerId, LoadReport]) -> None:
        self._client.hset(LOADS, mapping=encode_loads(reports))
        self._client.publish(LOADS, json.dumps(encode_loads(reports)))

    def remove(self, worker: str) -> None:
        self._client.hdel(BOARD, worker)

    def nudges(self) -> set[str]:
        return set(self._client.spop(NUDGES, 100) or ())


class Process:
    """What a gateway process made of the board."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.views: dict[WorkerId, HealthView] = {}
        self.stale = 0
        self.loads: dict[WorkerId, LoadReport] = {}
        self.board = HealthBoard(shared, self.views.update, self.loads.update, self._forget, lambda: 2.0)

    def _forget(self) -> None:
        self.stale += 1
        self.views.clear()


@asynccontextmanager
async def following(valkey: OwnValkey) -> AsyncIterator[Process]:
    shared = Shared(valkey.url)
    await shared.start()
    process = Process(shared)
    task = asyncio.create_task(process.board.run())
    try:
        yield process
    finally:
        task.cancel()
        await asyncio.wait({task})
        await shared.close()


def test_view_written_and_read_is_the_same() -> None:
    assert decode(json.loads(json.dumps(encode(BAD, -3)))) == BAD


async def test_board_that_exists_is_read_at_the_start(valkey: OwnValkey) -> None:
    Fleet(valkey).tick(w1=GOOD, w2=BAD)
    async with following(valkey) as process:
        await until(lambda: process.views == {"w1": GOOD, "w2": BAD})
        assert process.board.is_fresh


async def test_board_change_is_followed_in_less_than_a_second(valkey: OwnValkey) -> None:
    fleet = Fleet(valkey)
    fleet.tick(w1=GOOD)
    async with following(valkey) as process:
        await until(lambda: process.views == {"w1": GOOD})
        fleet.tick(w1=BAD)
        await until(lambda: process.views == {"w1": BAD}, 1)


async def test_board_worker_that_left_is_unknown_after_the_next_reading(valkey: OwnValkey) -> None:
    fleet = Fleet(valkey)
    fleet.tick(w1=GOOD, w2=GOOD)
    async with following(valkey) as process:
        await until(lambda: process.views == {"w1": GOOD, "w2": GOOD})
        fleet.remove("w2")
        await until(lambda: process.views == {"w1": GOOD, "w2": UNSEEN}, 5)


async def test_board_with_an_old_tick_is_not_believed_until_the_next_tick(valkey: OwnValkey) -> None:
    fleet, old = Fleet(valkey), time.time() - 60
    fleet.tick(at=old, w1=BAD)
    async with following(valkey) as process:
        await until(lambda: process.board.last_tick_unix_s == old)
        assert (process.views, process.board.is_fresh) == ({}, False)
        fleet.tick()
        await until(lambda: process.views == {"w1": BAD})


async def test_board_ticks_end_health_turns_unknown_after_ten_seconds(valkey: OwnValkey) -> None:
    fleet, last = Fleet(valkey), time.time() - 8
    fleet.tick(at=last, w1=BAD)
    async with following(valkey) as process:
        await until(lambda: process.views == {"w1": BAD})
        await until(lambda: process.stale == 1)
        assert (process.views, process.board.last_tick_unix_s) == ({}, last)
        assert time.time() - last == pytest.approx(10, abs=1.5)


async def test_board_lost_with_redis_is_kept_until_probes_write_it_again(valkey: OwnValkey) -> None:
    Fleet(valkey).tick(w1=BAD)
    async with following(valkey) as process:
        await until(lambda: process.views == {"w1": BAD})
        valkey.stop()
        valkey.start()
        fleet = Fleet(valkey)
        await until(lambda: process.shared.is_up)
        assert process.views == {"w1": BAD}
        fleet.tick(w1=GOOD)
        await until(lambda: process.views == {"w1": GOOD}, 5)


async def test_loads_reported_are_handed_on_and_old_ones_are_left_alone(valkey: OwnValkey) -> None:
    fleet, now = Fleet(valkey), time.time()
    fleet.tick(w1=GOOD)
    first, old = LoadReport(now, running=3, cache_use=0.5), LoadReport(now - 60, waiting=9)
    fleet.report({WorkerId("w1"): first, WorkerId("w2"): old})
    async with following(valkey) as process:
        await until(lambda: process.loads == {"w1": first})
        second = LoadReport(now + 1, running=0, waiting=0, queued_tokens=0, tokens_per_s=12.5, cache_use=0.0)
        fleet.report({WorkerId("w1"): second})
        await until(lambda: process.loads == {"w1": second}, 1)
        assert process.views == {"w1": GOOD}


async def test_nudges_of_one_worker_are_one_and_reach_redis_at_once(valkey: OwnValkey) -> None:
    fleet, shared = Fleet(valkey), Shared(valkey.url)
    await shared.start()
    nudge = RedisNudge(shared)
    task = asyncio.create_task(nudge.run())
    started = time.monotonic()
    for _ in range(100):
        nudge.nudge(WorkerId("w1"))
    await until(lambda: fleet.nudges() == {"w1"})
    nudge.nudge(WorkerId("w1"))
    nudge.nudge(WorkerId("w2"))
    await until(lambda: fleet.nudges() == {"w1", "w2"})
    assert time.monotonic() - started > 0.45
    task.cancel()
    await asyncio.wait({task})
    await shared.close()


async def test_nudge_without_redis_is_dropped(valkey: OwnValkey) -> None:
    valkey.stop()
    shared = Shared(valkey.url)
    await shared.start()
    nudge = RedisNudge(shared)
    nudge.nudge(WorkerId("w1"))
    valkey.start()
    task = asyncio.create_task(nudge.run())
    await until(lambda: shared.is_up)
    nudge.nudge(WorkerId("w2"))
    await until(lambda: Fleet(valkey).nudges() == {"w2"})
    task.cancel()
    await asyncio.wait({task})
    await shared.close()
