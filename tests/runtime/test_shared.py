from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.runtime.shared import OPERATION_S, Away, Script, Shared
from tests.fakes.valkey import OwnValkey, until


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path)
    yield server
    server.close()


@pytest_asyncio.fixture
async def shared(valkey: OwnValkey) -> AsyncIterator[Shared]:
    line = Shared(valkey.url)
    await line.start()
    yield line
    await line.close()


async def test_shared_started_with_redis_is_up_and_counts_itself(shared: Shared) -> None:
    assert (shared.is_up, shared.processes) == (True, 1)


async def test_shared_two_processes_both_count_two_and_one_after_the_other_left(
    valkey: OwnValkey, shared: Shared
) -> None:
    other = Shared(valkey.url)
    await other.start()
    await until(lambda: shared.processes == 2)
    await other.close()
    await until(lambda: shared.processes == 1)


async def test_shared_started_without_redis_comes_up_with_it(valkey: OwnValkey) -> None:
    valkey.stop()
    shared = Shared(valkey.url)
    await shared.start()
    assert not shared.is_up
    valkey.start()
    await until(lambda: shared.is_up)
    await shared.close()


async def test_shared_restart_of_redis_goes_down_and_recovers_without_help(valkey: OwnValkey, shared: Shared) -> None:
    valkey.stop()
    with pytest.raises(Away):
        await shared.ask("PING")
    assert not shared.is_up
    valkey.start()
    await until(lambda: shared.is_up)
    assert await shared.ask("PING") is True


async def test_shared_frozen_redis_costs_one_command_its_timeout(valkey: OwnValkey, shared: Shared) -> None:
    valkey.freeze()
    started = time.perf_counter()
    with pytest.raises(Away):
        await shared.ask("PING")
    assert OPERATION_S <= time.perf_counter() - started < OPERATION_S + 0.2
    assert not shared.is_up
    valkey.thaw()
    await until(lambda: shared.is_up)


async def test_shared_late_answer_of_a_command_given_up_reaches_nobody(valkey: OwnValkey, shared: Shared) -> None:
    await shared.ask("SET", "igw:a", "first")
    await shared.ask("SET", "igw:b", "second")
    valkey.freeze()
    cancelled = asyncio.create_task(shared.ask("GET", "igw:a"))
    await asyncio.sleep(0)  # it is under way
    with pytest.raises(Away):
        await shared.ask("GET", "igw:a")
    cancelled.cancel()
    await asyncio.wait({cancelled})
    valkey.thaw()
    await until(lambda: shared.is_up)
    assert [await shared.ask("GET", "igw:b") for _ in range(4)] == [b"second"] * 4


async def test_shared_cancelled_command_closes_its_connection(valkey: OwnValkey, shared: Shared) -> None:
    def blocked() -> int:
        with valkey.client() as client:
            return sum(entry["cmd"] == "blpop" for entry in client.client_list())

    task = asyncio.create_task(shared.ask("BLPOP", "igw:none", 30, timeout_s=30))
    await until(lambda: blocked() == 1)
    task.cancel()
    await asyncio.wait({task})
    await until(lambda: blocked() == 0)


async def test_shared_script_unknown_to_redis_is_sent_in_full(shared: Shared) -> None:
    script = Script("return {KEYS[1], ARGV[1]}")
    assert await shared.run(script, ["a"], 1) == [b"a", b"1"]
    await shared.ask("SCRIPT", "FLUSH")
    assert await shared.run(script, ["a"], 2) == [b"a", b"2"]


async def test_shared_subscription_hears_what_is_published_after_it_began(shared: Shared) -> None:
    async with shared.subscribe("igw:test") as subscription:
        await shared.ask("PUBLISH", "igw:test", "hello")
        message = await subscription.get_message(timeout=2)
    assert message["data"] == b"hello"


async def test_shared_subscription_of_a_stopped_redis_raises_away(valkey: OwnValkey, shared: Shared) -> None:
    async def listen() -> None:
        async with shared.subscribe("igw:test") as subscription:
            valkey.stop()
            while True:
                await subscription.get_message(timeout=1)

    with pytest.raises(Away):
        await listen()
