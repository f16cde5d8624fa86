from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gateway.pipeline.ports import Limit, Verdict
from gateway.runtime.limits import RedisLimiter
from gateway.runtime.shared import Shared
from tests.fakes.valkey import OwnValkey, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path_factory.mktemp("limits"))
    yield server
    server.close()


@pytest.fixture
def valkey(server: OwnValkey) -> OwnValkey:
    with server.client() as client:
        client.flushall()
    return server


@asynccontextmanager
async def limiters(valkey: OwnValkey, count: int) -> AsyncIterator[list[RedisLimiter]]:
    """As many limiters as if each were in a process of its own."""
    lines = [Shared(valkey.url) for _ in range(count)]
    limiters = [RedisLimiter(line) for line in lines]
    for line, limiter in zip(lines, limiters, strict=True):
        await line.start()
        await limiter.start()
    await until(lambda: all(line.processes == count for line in lines))
    try:
        yield limiters
    finally:
        for line, limiter in zip(lines, limiters, strict=True):
            await limiter.close()
            await line.close()


async def ask(limiter: RedisLimiter, limit: Limit) -> Verdict:
    return limiter.try_take(limit) or await limiter.take(limit)


async def granted(limiters: list[RedisLimiter], limit: Limit, calls: int) -> int:
    """How many of so many concurrent calls, spread over the limiters, were allowed."""
    asked = [ask(limiters[number % len(limiters)], limit) for number in range(calls)]
    return sum(verdict.is_allowed for verdict in await asyncio.gather(*asked))


def in_redis(valkey: OwnValkey, limit: Limit) -> int:
    with valkey.client() as client:
        return sum(map(int, client.hvals(f"igw:rate:{limit.scope}")))


async def test_limit_of_10_fifty_calls_over_two_processes_exactly_10_pass(valkey: OwnValkey) -> None:
    async with limiters(valkey, 2) as both:
        assert await granted(both, Limit("key:1", 10), 50) == 10


async def test_limit_of_600_two_thousand_calls_over_two_processes_exactly_600_pass(valkey: OwnValkey) -> None:
    async with limiters(valkey, 2) as both:
        assert await granted(both, Limit("key:1", 600), 2000) == 600


async def test_limit_of_600_steady_calls_with_leases_never_pass_it_and_strand_little(valkey: OwnValkey) -> None:
    limit, passed = Limit("key:1", 600), 0
    async with limiters(valkey, 2) as both:
        for _ in range(500):
            passed += await granted(both, limit, 4)
            await asyncio.sleep(0.001)
        assert 594 <= passed <= 600
        assert in_redis(valkey, limit) <= 600


async def test_limit_real_processes_fifty_calls_exactly_10_pass(valkey: OwnValkey) -> None:
    code = """
import asyncio, sys
from gateway.pipeline.ports import Limit
from gateway.runtime.limits import RedisLimiter
from gateway.runtime.shared import Shared

async def main():
    shared = Shared(sys.argv[1])
    await shared.start()
    limiter = RedisLimiter(shared)
    await limiter.start()
    verdicts = await asyncio.gather(*(limiter.take(Limit("key:1", 10)) for _ in range(25)))
    print(sum(verdict.is_allowed for verdict in verdicts))
    await limiter.close()
    await shared.close()

asyncio.run(main())
"""
    command = [sys.executable, "-c", code, valkey.url]
    children = [await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) for _ in range(2)]
    async with asyncio.timeout(30):
        outputs = await asyncio.gather(*(child.communicate() for child in children))
    assert sum(int(output) for output, _ in outputs) == 10


async def test_limit_reached_says_when_the_oldest_permit_comes_back(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 2)
    async with limiters(valkey, 1) as (limiter,):
        first, second, third = [await ask(limiter, limit) for _ in range(3)]
    assert [v.is_allowed for v in (first, second, third)] == [True, True, False]
    assert [v.remaining for v in (first, second, third)] == [1, 0, 0]
    assert 60 < third.retry_after_s <= third.reset_s <= 62


@pytest.mark.parametrize(("age", "is_allowed"), [(61, False), (63, True)])
async def test_limit_permits_of_a_past_second_count_until_no_60_seconds_can_hold_both(
    valkey: OwnValkey, age: int, is_allowed: bool
) -> None:
    async with limiters(valkey, 1) as (limiter,):
        with valkey.client() as client:
            seconds, micros = client.time()
            if micros > 900_000:  # the second must not turn in between
                await asyncio.sleep(0.11)
                seconds += 1
            client.hset("igw:rate:key:1", str(seconds - age), 10)
        verdict = await ask(limiter, Limit("key:1", 10))
    assert verdict.is_allowed is is_allowed
    assert verdict.retry_after_s <= 1


async def test_limit_keys_in_redis_expire_with_the_window(valkey: OwnValkey) -> None:
    async with limiters(valkey, 1) as (limiter,):
        await ask(limiter, Limit("key:1", 10))
        with valkey.client() as client:
            assert client.ttl("igw:rate:key:1") in (62, 63)


async def test_lease_under_demand_is_spent_without_waiting(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 60_000)
    async with limiters(valkey, 1) as (limiter,):
        waits = []
        for _ in range(800):
            verdict = limiter.try_take(limit)
            waits.append(verdict is None)
            if verdict is None:
                await limiter.take(limit)
            await asyncio.sleep(0.001)
        assert not any(waits[-300:])


async def test_lease_unspent_goes_back_within_a_second(valkey: OwnValkey) -> None:
    limit, spent = Limit("key:1", 60_000), 0
    async with limiters(valkey, 1) as (limiter,):
        while in_redis(valkey, limit) == spent:
            spent += (await ask(limiter, limit)).is_allowed
            await asyncio.sleep(0.001)
        started = time.monotonic()
        await until(lambda: in_redis(valkey, limit) == spent)
        assert time.monotonic() - started < 1.2


async def test_lease_is_given_back_when_the_process_ends(valkey: OwnValkey) -> None:
    limit, spent = Limit("key:1", 60_000), 0
    async with limiters(valkey, 1) as (limiter,):
        while in_redis(valkey, limit) == spent:
            spent += (await ask(limiter, limit)).is_allowed
            await asyncio.sleep(0.001)
    assert in_redis(valkey, limit) == spent


async def test_limit_under_60_leases_nothing(valkey: OwnValkey) -> None:
    limit, passed = Limit("key:1", 59), 0
    async with limiters(valkey, 1) as (limiter,):
        for _ in range(40):
            passed += (await ask(limiter, limit)).is_allowed
            assert in_redis(valkey, limit) == passed
            await asyncio.sleep(0.01)


async def test_give_back_makes_room_for_another_call(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 1)
    async with limiters(valkey, 2) as (one, other):
        assert (await ask(one, limit)).is_allowed
        one.give_back(limit)
        await until(lambda: in_redis(valkey, limit) == 0)
        assert (await ask(other, limit)).is_allowed


async def test_take_cancelled_while_it_waits_costs_no_permit(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 10)
    async with limiters(valkey, 1) as (limiter,):
        tasks = [asyncio.create_task(limiter.take(limit)) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await until(lambda: in_redis(valkey, limit) == 0)
        assert await granted([limiter], limit, 20) == 10


async def test_limit_without_redis_is_this_process_s_share(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 20)
    async with limiters(valkey, 2) as both:
        valkey.stop()
        try:
            assert await granted(both, limit, 60) == 20
            assert await granted(both[:1], Limit("key:2", 1), 5) == 1  # a share is never less than one
        finally:
            valkey.start()


async def test_limit_redis_lost_in_mid_window_what_was_spent_counts_on(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 20)
    async with limiters(valkey, 1) as (limiter,):
        assert await granted([limiter], limit, 15) == 15
        valkey.stop()
        try:
            assert await granted([limiter], limit, 30) == 5
        finally:
            valkey.start()


async def test_limit_redis_back_learns_what_was_spent_without_it(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 20)
    async with limiters(valkey, 2) as (one, other):
        valkey.stop()
        try:
            assert await granted([one], limit, 30) == 10
        finally:
            valkey.start()
        await until(lambda: in_redis(valkey, limit) == 10)
        assert await granted([one, other], limit, 50) == 10


async def test_limit_frozen_redis_costs_one_call_a_quarter_second_and_the_next_nothing(valkey: OwnValkey) -> None:
    limit = Limit("key:1", 20)
    async with limiters(valkey, 1) as (limiter,):
        valkey.freeze()
        try:
            started = time.perf_counter()
            assert (await ask(limiter, limit)).is_allowed
            assert time.perf_counter() - started < 0.4
            assert limiter.try_take(limit) is not None
        finally:
            valkey.thaw()


async def test_limits_of_several_scopes_share_a_round_trip(valkey: OwnValkey) -> None:
    async with limiters(valkey, 1) as (limiter,):
        await ask(limiter, Limit("key:0", 10))  # the script is known from here on
        with valkey.client() as client:
            before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            await asyncio.gather(*(limiter.take(Limit(f"key:{number}", 10)) for number in range(1, 20)))
            assert client.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 1
