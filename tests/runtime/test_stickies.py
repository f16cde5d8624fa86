from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.policies.manual import Manual, ManualOptions
from gateway.routing.breaker import Breaker
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need, Requirement
from gateway.routing.sticky import Workers, digest
from gateway.routing.worker import Worker
from gateway.runtime.shared import Shared
from gateway.runtime.stickies import CHANNEL, Stickies
from tests.fakes.valkey import OwnValkey, until
from tests.routing.pools import pool_spec, worker

SPEC = pool_spec(*map(worker, "abcd"), id=7)
REQUIREMENT = Requirement("chat", "m", is_streaming=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path_factory.mktemp("stickies"))
    yield server
    server.close()


@pytest.fixture
def valkey(server: OwnValkey) -> OwnValkey:
    with server.client() as client:
        client.flushall()
    return server


class Process:
    """A gateway process that assigns new keys to the worker of its number."""

    def __init__(self, url: str, number: int, **options: Any) -> None:
        self.shared = Shared(url)
        self.policy = Manual(ManualOptions(**options), lambda: number / 4)
        self.pool = Pool(SPEC, [Worker(each, Breaker(SPEC.breaker)) for each in SPEC.workers], self.policy)
        self.stickies = Stickies(self.shared, lambda: [self.pool])

    async def call(self, key: str, *, recalls: bool = True) -> str:
        """One call of this key, up to its end; who served it."""
        need = Need(REQUIREMENT, routing_key=key)
        if recalls:
            await self.stickies.recall(self.pool, need)
        leases = self.pool.admit(need, time.monotonic())
        assert leases is not None
        for lease in leases:
            lease.release()
        return leases[1].worker.spec.name

    def knows(self, key: str) -> Workers:
        return self.policy.memory.get(digest(key), time.monotonic())

    def has_told(self) -> bool:
        return not self.policy.memory.claims(1)


@asynccontextmanager
async def processes(valkey: OwnValkey, count: int, **options: Any) -> AsyncIterator[list[Process]]:
    """So many processes at work."""
    started = [Process(valkey.url, number, **options) for number in range(count)]
    for process in started:
        await process.shared.start()
    tasks = [asyncio.create_task(process.stickies.run()) for process in started]
    try:
        await following(valkey, count)
        yield started
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for process in started:
            await process.shared.close()


async def following(valkey: OwnValkey, count: int) -> None:
    with valkey.client() as client:
        await until(lambda: client.pubsub_numsub(CHANNEL)[0][1] == count)


async def test_key_assigned_in_one_process_is_known_in_another_within_half_a_second(valkey: OwnValkey) -> None:
    async with processes(valkey, 2) as (one, other):
        assert await one.call("k") == "a"
        await until(lambda: other.knows("k") == ("a",), 0.5)
        assert await other.call("k", recalls=False) == "a"


async def test_key_told_but_not_heard_of_yet_is_recalled(valkey: OwnValkey) -> None:
    async with processes(valkey, 1) as (one,):
        await one.call("k")
        await until(one.has_told)
        other = Process(valkey.url, 1)  # hears nothing: only asks
        await other.shared.start()
        assert [await other.call("k"), await other.call("new")] == ["a", "b"]
        await other.shared.close()


async def test_keys_claimed_by_three_processes_at_once_have_one_winner_in_all(valkey: OwnValkey) -> None:
    keys = [f"k{at}" for at in range(500)]
    async with processes(valkey, 3) as all_three:
        for key in keys:
            for process in all_three:
                await process.call(key, recalls=False)
        await until(lambda: all(process.has_told() for process in all_three))
        first, second, third = ([process.knows(key) for key in keys] for process in all_three)
        assert first == second == third
        assert {len(workers) for workers in first} == {1}


async def test_stand_in_of_a_key_is_told_too(valkey: OwnValkey) -> None:
    async with processes(valkey, 2) as (one, other):
        await one.call("k")
        await until(lambda: other.knows("k") == ("a",))
        other.policy.memory.served(digest("k"), SPEC.workers[2].id, time.monotonic())
        await until(lambda: one.knows("k") == ("a", "c"), 0.5)


async def test_keys_are_known_again_after_a_restart_of_all(valkey: OwnValkey) -> None:
    keys = [f"k{at}" for at in range(2500)]
    async with processes(valkey, 2) as (one, other):
        for key in keys[:1250]:
            await one.call(key, recalls=False)
        for key in keys[1250:]:
            await other.call(key, recalls=False)
        await until(lambda: one.has_told() and other.has_told())
    async with processes(valkey, 1) as (new,):
        await until(lambda: [new.knows(key) for key in keys] == [("a",)] * 1250 + [("b",)] * 1250)


async def test_pool_edited_while_running_has_its_keys_again(valkey: OwnValkey) -> None:
    async with processes(valkey, 1) as (one,):
        await one.call("k")
        await until(one.has_told)
        one.policy = one.pool.policy = Manual(ManualOptions(assignment_mode="min_load"), lambda: 0.9)
        await until(lambda: one.knows("k") == ("a",))


async def test_redis_away_each_goes_on_and_they_agree_when_it_is_back(valkey: OwnValkey) -> None:
    async with processes(valkey, 2) as (one, other):
        await one.call("before")
        await until(lambda: other.knows("before") == ("a",))
        valkey.stop()
        assert [await one.call("during"), await other.call("during"), await other.call("before")] == ["a", "b", "a"]
        valkey.start()  # without what it knew
        await following(valkey, 2)
        await until(lambda: one.has_told() and other.has_told())
        await until(lambda: one.knows("during") == other.knows("during") != ())


async def test_redis_hangs_a_call_waits_a_quarter_of_a_second_once(valkey: OwnValkey) -> None:
    async with processes(valkey, 1) as (one,):
        valkey.freeze()
        started = time.monotonic()
        assert [await one.call(f"k{at}") for at in range(20)] == ["a"] * 20
        assert time.monotonic() - started < 1
        valkey.thaw()
        await until(one.has_told)


async def test_key_idle_too_long_is_forgotten_in_redis_too(valkey: OwnValkey) -> None:
    async with processes(valkey, 2, max_idle_s=1.0) as (one, other):
        await one.call("k")
        await one.call("kept")
        await until(lambda: other.knows("k") and other.knows("kept"))
        while other.knows("k"):
            await one.call("kept", recalls=False)  # is told again and again
            await asyncio.sleep(0.02)
        assert [await other.call("k"), await other.call("kept")] == ["b", "a"]


async def test_keys_beyond_the_most_are_forgotten_in_redis_too(valkey: OwnValkey) -> None:
    async with processes(valkey, 1, max_keys=100) as (one,):
        for at in range(250):
            await one.call(f"k{at}", recalls=False)
            if at % 50 == 49:
                await until(one.has_told)
    with valkey.client() as client:
        assert (client.hlen("igw:sticky:7"), client.zcard("igw:sticky:7:used")) == (100, 100)


async def test_redis_holds_nothing_of_a_client_s_own_and_nothing_for_ever(valkey: OwnValkey) -> None:
    async with processes(valkey, 1) as (one,):
        await one.call("jane@example.com")
        await until(one.has_told)
    with valkey.client() as client:
        assert client.hgetall("igw:sticky:7") == {digest("jane@example.com"): '["a"]'}
        assert client.zrange("igw:sticky:7:used", 0, -1) == [digest("jane@example.com")]
        assert all(0 < client.ttl(name) <= 14_400 for name in ("igw:sticky:7", "igw:sticky:7:used"))


async def test_something_unreadable_in_redis_does_not_end_the_sharing(
    valkey: OwnValkey, caplog: pytest.LogCaptureFixture
) -> None:
    async with processes(valkey, 2) as (one, other):
        with valkey.client() as client:
            client.publish(CHANNEL, "nonsense")
        await until(lambda: "following the keys of pools failed" in caplog.text)
        await following(valkey, 2)
        await one.call("k")
        await until(lambda: other.knows("k") == ("a",))
