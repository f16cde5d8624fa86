"""Rests of workers as all gateway processes know them: who heard a refusal tells the others through Redis.

    igw:rests        sorted set: worker id -> end of its rest, in milliseconds of Redis's clock; and a channel for news
    igw:rests:why    hash: worker id -> "since reason"

Redis's clock decides, since those of the hosts may differ: a process tells how long a rest still lasts and is told the
same. A rest that is known to last longer stays as it is, here as in `routing/rest`. News goes through the channel
within milliseconds. What is kept is for those who were not there, and is read whenever the channel was joined: at the
start of a process and after Redis was away. It ends with the last rest in it.

Telling never waits: what is to be told is kept per worker, so that it is bounded, until Redis takes it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.routing.rest import Rest, RestReason
from gateway.routing.snapshot import WorkerId
from gateway.runtime.shared import RETRY_S, Away, Script, Shared

log = logging.getLogger(__name__)

RESTS = CHANNEL = "igw:rests"
WHY = "igw:rests:why"
_QUIET_S = 1.0  # between two looks whether Redis still answers
_PATIENCE_S = 0.5  # a page waits for it

_CLOCK = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# Takes the teller and triples of worker, reason and milliseconds; passes on those that end later than what is known.
_TELL = Script(
    _CLOCK
    + """
local news = {}
for i = 2, #ARGV, 3 do
  local worker, reason, ends, began = ARGV[i], ARGV[i + 1], now + ARGV[i + 2], now
  local known = tonumber(redis.call('ZSCORE', KEYS[1], worker) or 0)
  if ends > known then
    local why = redis.call('HGET', KEYS[2], worker)
    if known > now and why then began = tonumber(string.match(why, '^%d+')) end
    redis.call('ZADD', KEYS[1], ends, worker)
    redis.call('HSET', KEYS[2], worker, string.format('%.0f %s', began, reason))
    table.insert(news, {worker, reason, ARGV[i + 2]})
  end
end
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], worker)
  redis.call('HDEL', KEYS[2], worker)
end
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if last then
  redis.call('PEXPIREAT', KEYS[1], last)
  redis.call('PEXPIREAT', KEYS[2], last)
end
if #news > 0 then redis.call('PUBLISH', KEYS[1], cjson.encode({ARGV[1], news})) end
"""
)
# Worker, "since reason", end and milliseconds left of each.
_LIST = Script(
    _CLOCK
    + """
local found, rests = {}, redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES')
for i = 1, #rests, 2 do
  local why, ends = redis.call('HGET', KEYS[2], rests[i]), tonumber(rests[i + 1])
  if why then table.insert(found, {rests[i], why, ends, ends - now}) end
end
return found
"""
)


class Rests:
    """Tells the other processes, and calls `apply` with a worker, reason and seconds for what they told."""

    def __init__(self, shared: Shared, apply: Callable[[WorkerId, RestReason, float], None]) -> None:
        self._shared = shared
        self._apply = apply
        self._untold: dict[WorkerId, tuple[RestReason, float]] = {}  # until when, on this process's monotonic clock
        self._is_asked = asyncio.Event()

    def tell(self, worker_id: WorkerId, rest: Rest, now: float) -> None:
        """The worker refused us: let the others know how long it rests. Does nothing if it does not rest."""
        if rest.reason is not None and rest.is_on(now):
            self._untold[worker_id] = (rest.reason, rest.until)
            self._is_asked.set()

    async def run(self) -> None:
        """Tell and follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_on())
            tasks.create_task(self._follow_on())

    async def _tell_on(self) -> None:
        while True:
            await self._is_asked.wait()
            self._is_asked.clear()
            if self._untold and not (self._shared.is_up and await self._send()):
                self._is_asked.set()
                await asyncio.sleep(RETRY_S)

    async def _send(self) -> bool:
        untold, self._untold = self._untold, {}
        now = time.monotonic()
        values: list[str | int] = []
        for worker_id, (reason, until) in untold.items():
            if until > now:
                values += (worker_id, reason.value, round((until - now) * 1000))
        try:
            if values:
                await self._shared.run(_TELL, [RESTS, WHY], self._shared.process_id, *values)
        except Away:
            self._untold = {**untold, **self._untold}  # of a worker the newer, which is not the earlier
            return False
        return True

    async def _follow_on(self) -> None:
        while True:
            if self._shared.is_up:
                try:
                    await self._follow()
                except Away:
                    pass
                except Exception:  # a background loop: something unreadable in Redis must not end it
                    log.exception("reading the rests of workers failed")
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        async with self._shared.subscribe(CHANNEL) as subscription:
            await self._read()
            while self._shared.is_up:
                message = await subscription.get_message(timeout=_QUIET_S)
                if message is not None:
                    teller, news = json.loads(message["data"])
                    if teller != self._shared.process_id:
                        for worker, reason, length_ms in news:
                            self._apply(WorkerId(worker), RestReason(reason), int(length_ms) / 1000)

    async def _read(self) -> None:
        asked = time.monotonic()
        found = await self._shared.run(_LIST, [RESTS, WHY])
        answered = time.monotonic()
        for worker, why, _, left_ms in found:  # the way back has taken some of it
            left_s = left_ms / 1000 - (answered - asked)
            if left_s > 0:
                self._apply(WorkerId(worker.decode()), _reason(why), left_s)


@dataclass(frozen=True, slots=True)
class Resting:
    """A worker that rests, for people to see."""

    worker_id: WorkerId
    reason: RestReason
    since_unix_s: float
    until_unix_s: float


def current(redis_url: str) -> list[Resting] | None:
    """The workers that rest now, by worker id, for pages and the control API; None: Redis does not say."""
    try:
        with redis.Redis.from_url(
            redis_url, socket_connect_timeout=_PATIENCE_S, socket_timeout=_PATIENCE_S, retry=Retry(NoBackoff(), 0)
        ) as client:
            found = client.eval(_LIST.text, 2, RESTS, WHY)
    except redis.RedisError as error:
        log.warning("the rests of workers are unknown", extra={"fields": {"reason": type(error).__name__}})
        return None
    resting = [
        Resting(WorkerId(worker.decode()), _reason(why), int(why.split()[0]) / 1000, ends / 1000)
        for worker, why, ends, _ in found
    ]
    return sorted(resting, key=lambda one: one.worker_id)


def _reason(why: bytes) -> RestReason:
    return RestReason(why.decode().partition(" ")[2])
