"""runtime/watcher: what a process serves after edits, bells, polls and mishaps."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from gateway.models import ConfigRevision, Pool, Worker
from gateway.routing.snapshot import Snapshot
from gateway.runtime.edit import edit
from gateway.runtime.watcher import Watcher

pytestmark = pytest.mark.django_db(transaction=True)
AWAY = "redis://127.0.0.1:1/0"


class Process:
    """A process that follows: its watcher, and what it was handed."""

    def __init__(self, redis_url: str, poll_s: float) -> None:
        self.snapshots: list[Snapshot] = []
        self.watcher = Watcher(self.snapshots.append, redis_url, poll_s)

    async def until(self, condition: Callable[[], bool], within_s: float = 5.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def following(redis_url: str = settings.REDIS_URL, poll_s: float = 60.0) -> AsyncIterator[Process]:
    process = Process(redis_url, poll_s)
    task = asyncio.create_task(process.watcher.run())
    try:
        await process.until(
            lambda: process.watcher.status.revision is not None or bool(process.watcher.status.last_error)
        )
        yield process
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=5)
        await sync_to_async(connections.close_all)()


@sync_to_async
def change(**columns: Any) -> None:
    with edit("alice", "admin"):
        pool, _ = Pool.objects.update_or_create(model="m", defaults=columns)
        Worker.objects.get_or_create(pool=pool, name="w1", defaults={"url": "http://h"})


@sync_to_async
def revise_behind_the_check(**columns: Any) -> None:
    """A revision whose rows no edit would have let through."""
    Pool.objects.update(**columns)
    ConfigRevision.objects.create(actor="eve", origin="sql", summary="", document={}, fingerprint="")


async def test_watcher_loads_at_its_start() -> None:
    await change()
    async with following() as process:
        assert [list(snapshot.pools) for snapshot in process.snapshots] == [["m"]]
        assert process.watcher.status.last_change_unix_s is not None


async def test_watcher_loads_an_empty_configuration_as_revision_0() -> None:
    async with following() as process:
        assert [(snapshot.revision, dict(snapshot.pools)) for snapshot in process.snapshots] == [(0, {})]


async def test_edit_is_live_by_the_bell_in_two_processes() -> None:
    async with following() as one, following() as two:
        await change(max_in_flight=7)
        for process in (one, two):
            await process.until(lambda process=process: "m" in process.snapshots[-1].pools, within_s=1.0)
            assert process.snapshots[-1].pools["m"].max_in_flight == 7


async def test_edit_is_live_by_the_poll_without_redis() -> None:
    async with following(AWAY, poll_s=0.05) as process:
        await change()
        await process.until(lambda: "m" in process.snapshots[-1].pools)


async def test_bad_configuration_keeps_the_last_good_and_says_why_until_it_is_good_again() -> None:
    await change()
    async with following(poll_s=0.05) as process:
        status = process.watcher.status
        await revise_behind_the_check(queue={"size": -1})
        await process.until(lambda: bool(status.last_error))
        assert [str(p) for p in status.last_error] == ["pools[m].queue.size: -1 is below the least allowed, 0"]
        assert len(process.snapshots) == 1
        await revise_behind_the_check(queue={"size": 5})
        await process.until(lambda: len(process.snapshots) == 2)
        assert (status.last_error, process.snapshots[-1].pools["m"].queue.size) == ([], 5)


async def test_secret_that_turns_up_later_is_taken_at_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    await change()
    await sync_to_async(Worker.objects.update)(secret="env:IGW_TEST_WORKER_KEY")
    async with following(poll_s=0.05) as process:
        assert [problem.path for problem in process.watcher.status.last_error] == ["pools[m].workers[w1].api_key"]
        monkeypatch.setenv("IGW_TEST_WORKER_KEY", "k")
        await process.until(lambda: process.watcher.status.last_error == [])
        assert process.snapshots[-1].pools["m"].workers[0].credential == "k"


async def test_database_that_is_away_keeps_the_last_good(monkeypatch: pytest.MonkeyPatch) -> None:
    await change()
    async with following(poll_s=0.05) as process:
        await process.until(lambda: len(process.snapshots) == 1)
        process.watcher._thread.submit(_lose_database).result(5)
        await process.until(lambda: bool(process.watcher.status.last_error))
        assert str(process.watcher.status.last_error[0]) == "the database cannot be read (OperationalError)"
        process.watcher._thread.submit(_find_database).result(5)
        await process.until(lambda: process.watcher.status.last_error == [])
        assert len(process.snapshots) == 1


def _lose_database() -> None:
    connection = connections["default"]
    connection.close()
    connection.settings_dict = {**connection.settings_dict, "PORT": "1"}


def _find_database() -> None:
    connection = connections["default"]
    connection.settings_dict = {**connection.settings_dict, "PORT": settings.DATABASES["default"]["PORT"]}


async def test_revision_that_says_the_same_is_no_new_snapshot() -> None:
    await change()
    async with following() as process:
        first = process.watcher.status.revision
        await change(max_in_flight=1)
        await change(max_in_flight=None)
        await process.until(lambda: process.watcher.status.revision == first + 2)
        assert [s.pools["m"].max_in_flight for s in process.snapshots][-1] is None
        count = len(process.snapshots)
        await revise_behind_the_check()
        await process.watcher.refresh()
        assert (process.watcher.status.revision, len(process.snapshots)) == (first + 3, count)


async def test_hundred_reloads_without_a_change_leave_memory_flat() -> None:
    await change()
    async with following() as process:
        for _ in range(20):
            await process.watcher.refresh(reload=True)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            await process.watcher.refresh(reload=True)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(process.snapshots) == 1
        assert grown < 100_000
