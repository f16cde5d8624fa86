from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.routing.rest import Rest, RestReason
from gateway.routing.snapshot import WorkerId
from gateway.runtime.rests import RESTS, WHY, Resting, Rests, current
from gateway.runtime.shared import Shared
from tests.fakes.valkey import OwnValkey, until

W1, W2 = WorkerId("w1"), WorkerId("a1mdeepseek/r1")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path)
    yield server
    server.close()


class Process:
    """What a gateway process knows of rests, its own and those of others."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.rests: dict[WorkerId, Rest] = {}
        self.heard: list[tuple[WorkerId, RestReason]] = []
        self.line = Rests(shared, self._apply)

    def _apply(self, worker: WorkerId, reason: RestReason, remaining_s: float) -> None:
        now = time.monotonic()
        self.heard.append((worker, reason))
        self.rests.setdefault(worker, Rest()).extend(reason, now, now + remaining_s)

    def refused(self, worker: WorkerId, reason: RestReason, length_s: float) -> None:
        now = time.monotonic()
        rest = self.rests.setdefault(worker, Rest())
        rest.extend(reason, now, now + length_s)
        self.line.tell(worker, rest, now)

    def left_s(self, worker: WorkerId) -> float:
        rest = self.rests.get(worker)
        return 0.0 if rest is None else rest.until - time.monotonic()


@asynccontextmanager
async def process(valkey: OwnValkey) -> AsyncIterator[Process]:
    shared = Shared(valkey.url)
    await shared.start()
    one = Process(shared)
    task = asyncio.create_task(one.line.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait({task})
        await shared.close()


async def subscribed(valkey: OwnValkey, processes: int) -> None:
    with valkey.client() as client:
        await until(lambda: client.pubsub_numsub(RESTS)[0][1] == processes)


async def test_rest_told_reaches_another_process(valkey: OwnValkey) -> None:
    async with process(valkey) as one, process(valkey) as other:
        await subscribed(valkey, 2)
        one.refused(W2, RestReason.QUOTA, 900)
        await until(lambda: other.heard == [(W2, RestReason.QUOTA)])
        assert other.left_s(W2) == pytest.approx(900, abs=0.3)
        assert one.heard == []  # nobody is told what it said itself


async def test_rest_known_longer_is_not_shortened_by_a_later_refusal(valkey: OwnValkey) -> None:
    async with process(valkey) as one, process(valkey) as other:
        await subscribed(valkey, 2)
        one.refused(W1, RestReason.QUOTA, 100)
        await until(lambda: other.heard)
        with valkey.client() as client:
            ends, why = client.zscore(RESTS, W1), client.hget(WHY, W1)
            other.rests.clear()  # as if it had not heard yet
            other.refused(W1, RestReason.RATE_LIMIT, 5)
            other.refused(W2, RestReason.RATE_LIMIT, 5)
            await until(lambda: one.heard == [(W2, RestReason.RATE_LIMIT)])
            assert (client.zscore(RESTS, W1), client.hget(WHY, W1)) == (ends, why)
        assert one.left_s(W1) == pytest.approx(100, abs=1)


async def test_rest_made_longer_keeps_when_it_began(valkey: OwnValkey) -> None:
    async with process(valkey) as one, process(valkey) as other:
        await subscribed(valkey, 2)
        one.refused(W1, RestReason.RATE_LIMIT, 1)
        await until(lambda: other.heard)
        (before,) = current(valkey.url) or ()
        other.refused(W1, RestReason.CREDIT, 60)
        await until(lambda: one.heard)
        (after,) = current(valkey.url) or ()
        assert after == Resting(W1, RestReason.CREDIT, before.since_unix_s, after.until_unix_s)
        assert after.until_unix_s - time.time() == pytest.approx(60, abs=0.5)


async def test_rest_is_known_to_a_process_that_starts_later(valkey: OwnValkey) -> None:
    async with process(valkey) as one:
        one.refused(W1, RestReason.CREDENTIAL, 50)
        await until(lambda: current(valkey.url))
    async with process(valkey) as late:
        await until(lambda: late.heard == [(W1, RestReason.CREDENTIAL)])
        assert 49 < late.left_s(W1) <= 50


async def test_rest_that_is_over_is_in_no_list_and_leaves_redis(valkey: OwnValkey) -> None:
    async with process(valkey) as one:
        one.refused(W1, RestReason.RATE_LIMIT, 0.3)
        one.refused(W2, RestReason.RATE_LIMIT, 0.6)
        await until(lambda: [resting.worker_id for resting in current(valkey.url) or ()] == [W2, W1])
        await until(lambda: [resting.worker_id for resting in current(valkey.url) or ()] == [W2])
        with valkey.client() as client:
            one.refused(W2, RestReason.RATE_LIMIT, 0.7)
            await until(lambda: client.zrange(RESTS, 0, -1) == [W2] and client.hkeys(WHY) == [W2])
            await until(lambda: client.exists(RESTS, WHY) == 0)


async def test_rest_told_while_redis_is_away_is_told_when_it_is_back(valkey: OwnValkey) -> None:
    async with process(valkey) as one, process(valkey) as other:
        await subscribed(valkey, 2)
        valkey.stop()
        one.refused(W1, RestReason.QUOTA, 40)
        await until(lambda: not one.shared.is_up)
        one.refused(W2, RestReason.QUOTA, 0.01)  # over before anybody can be told
        assert current(valkey.url) is None
        valkey.start()
        await until(lambda: other.heard == [(W1, RestReason.QUOTA)])
        assert other.left_s(W1) == pytest.approx(40, abs=5)
        assert [resting.worker_id for resting in current(valkey.url) or ()] == [W1]


async def test_rest_that_is_none_is_not_told(valkey: OwnValkey) -> None:
    async with process(valkey) as one:
        one.line.tell(W1, Rest(), 1.0)
        one.refused(W2, RestReason.QUOTA, 9)
        await until(lambda: current(valkey.url))
        assert [resting.worker_id for resting in current(valkey.url) or ()] == [W2]
