"""The keys of `manual` pools as all gateway processes know them, through Redis.

    igw:sticky:<pool>        hash: digest of a key -> JSON list of worker ids
    igw:sticky:<pool>:used   sorted set: digest -> last use, in milliseconds of Redis's clock
    igw:sticky               channel: [pool, [[digest, worker ids], ...]], what became of keys

A process chooses by what it knows and claims afterwards, some 20 times a second: one script compares what the process
knew with what stands, writes or does not, and answers what stands then. Changes are on the channel in the order in
which they were written. A key the process does not know is looked up before its call is sent, in one round trip.

All keys are read when a pool is new here and whenever the channel was joined, which is at the start and after Redis was
away. Without Redis each process remembers by itself and claims later. What Redis lost comes back with the keys' use.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable
from weakref import WeakSet

from gateway.policies.manual import Manual
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need
from gateway.routing.snapshot import PoolId, WorkerId
from gateway.routing.sticky import StickyMap, Workers
from gateway.runtime.shared import RETRY_S, Away, Script, Shared

log = logging.getLogger(__name__)

CHANNEL = "igw:sticky"
_CLAIM_S = 0.05
_QUIET_S = 1.0  # between two looks whether Redis still answers
_CLAIMS = 200  # in one script: Redis does nothing else meanwhile
_PAGE = 500

_CLOCK = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# Takes idle time, most keys and pool, then triples of key, what the process knew and what it wants.
_CLAIM = Script(
    _CLOCK
    + """
local hash, used, idle = KEYS[1], KEYS[2], tonumber(ARGV[1])
local standing, news = {}, {}
for i = 4, #ARGV, 3 do
  local key, before, wanted = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local since = tonumber(redis.call('ZSCORE', used, key) or 0)
  local known = since > now - idle and redis.call('HGET', hash, key)
  if not known or known == before then
    if known ~= wanted then
      redis.call('HSET', hash, key, wanted)
      table.insert(news, {key, wanted})
    end
    known = wanted
  end
  redis.call('ZADD', used, now, key)
  table.insert(standing, known)
end
local function forget(keys)
  for _, key in ipairs(keys) do
    redis.call('ZREM', used, key)
    redis.call('HDEL', hash, key)
  end
end
forget(redis.call('ZRANGEBYSCORE', used, '-inf', now - idle, 'LIMIT', 0, 1000))
local over = redis.call('ZCARD', used) - tonumber(ARGV[2])
if over > 0 then forget(redis.call('ZRANGE', used, 0, math.min(over, 1000) - 1)) end
redis.call('PEXPIRE', hash, idle)
redis.call('PEXPIRE', used, idle)
if #news > 0 then redis.call('PUBLISH', 'igw:sticky', cjson.encode({ARGV[3], news})) end
return standing
"""
)
# Takes idle time and key, which is in use from now on.
_RECALL = Script(
    _CLOCK
    + """
local since = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[2]) or 0)
if since <= now - tonumber(ARGV[1]) then return false end
redis.call('ZADD', KEYS[2], now, ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return redis.call('HGET', KEYS[1], ARGV[2])
"""
)
# Takes two ranks by last use; answers key, workers and age of each between them.
_PAGE_OF = Script(
    _CLOCK
    + """
local page, found = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2], 'WITHSCORES'), {}
for i = 1, #page, 2 do
  table.insert(found, {page[i], redis.call('HGET', KEYS[1], page[i]), now - page[i + 1]})
end
return found
"""
)


class Stickies:
    """Implements `pipeline.ports.StickyMemory`. `pools` gives the present ones."""

    def __init__(self, shared: Shared, pools: Callable[[], Iterable[Pool]]) -> None:
        self._shared = shared
        self._pools = pools
        self._loaded: WeakSet[StickyMap] = WeakSet()

    async def recall(self, pool: Pool, need: Need) -> None:
        """Look a key up that this process does not know, which takes 0.25 s at most."""
        policy = pool.policy
        if not isinstance(policy, Manual) or not self._shared.is_up:
            return
        key, memory = policy.key_of(need), policy.memory
        if key is None or memory.get(key, time.monotonic()):
            return
        try:
            found = await self._shared.run(_RECALL, _names(pool.spec.id), _idle_ms(memory), key)
        except Away:
            return
        now = time.monotonic()
        if found is not None and not memory.get(key, now):
            memory.learn(key, _workers(found), now)

    async def run(self) -> None:
        """Claim and follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claim_on())
            tasks.create_task(self._follow_on())

    def _memories(self) -> dict[PoolId, StickyMap]:
        return {pool.spec.id: pool.policy.memory for pool in self._pools() if isinstance(pool.policy, Manual)}

    async def _claim_on(self) -> None:
        while True:
            await asyncio.sleep(_CLAIM_S)
            if not self._shared.is_up:
                continue
            try:
                for pool_id, memory in self._memories().items():
                    await self._claim(pool_id, memory)
                    if memory not in self._loaded:
                        await self._load(pool_id, memory)
                        self._loaded.add(memory)
            except Away:
                pass  # what was not settled is claimed again
            except Exception:  # a background loop: something unreadable in Redis must not end it
                log.exception("sharing the keys of pools failed")
                await asyncio.sleep(RETRY_S)

    async def _claim(self, pool_id: PoolId, memory: StickyMap) -> None:
        while claims := memory.claims(_CLAIMS):
            values: list[str | int] = [_idle_ms(memory), memory.max_keys, pool_id]
            for claim in claims:
                values += (claim.key, _text(claim.before), _text(claim.workers))
            standing = await self._shared.run(_CLAIM, _names(pool_id), *values)
            now = time.monotonic()
            for claim, text in zip(claims, standing, strict=True):
                memory.settle(claim, _workers(text), now)

    async def _load(self, pool_id: PoolId, memory: StickyMap) -> None:
        """Learn all keys that are in use, the one used longest ago first."""
        for first in range(0, memory.max_keys, _PAGE):
            page = await self._shared.run(_PAGE_OF, _names(pool_id), first, first + _PAGE - 1)
            now = time.monotonic()
            for key, text, age_ms in page:
                if text is not None and age_ms < _idle_ms(memory):
                    memory.learn(key.decode(), _workers(text), now - age_ms / 1000)
            if len(page) < _PAGE:
                return

    async def _follow_on(self) -> None:
        while True:
            if self._shared.is_up:
                try:
                    await self._follow()
                except Away:
                    pass
                except Exception:  # a background loop, as above
                    log.exception("following the keys of pools failed")
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        async with self._shared.subscribe(CHANNEL) as subscription:
            self._loaded.clear()  # what was written while nobody listened is to be read
            while self._shared.is_up:
                message = await subscription.get_message(timeout=_QUIET_S)
                if message is None:
                    continue
                pool_id, news = json.loads(message["data"])
                memory = self._memories().get(PoolId(int(pool_id)))
                if memory is not None:
                    now = time.monotonic()
                    for key, text in news:
                        memory.learn(key, _workers(text), now)


def _names(pool_id: PoolId) -> list[str]:
    return [f"igw:sticky:{pool_id}", f"igw:sticky:{pool_id}:used"]


def _idle_ms(memory: StickyMap) -> int:
    return round(memory.max_idle_s * 1000)


def _text(workers: Workers) -> str:
    return json.dumps(workers)


def _workers(text: bytes | str) -> Workers:
    return tuple(WorkerId(worker) for worker in json.loads(text))
