"""Calls a minute, exact over all processes: permits leased from Redis, spent here.

One script counts permits per scope and second, by Redis's clock. A permit may be spent for one second after it was
asked for, so two calls less than 60 s apart were granted less than 61 s apart, and their seconds differ by 61 at most:
with 62 seconds counted, no 60 s ever see more than the limit. The price is that a permit comes back after 62 s.

    a call finds a leased permit       no wait; a refill is asked for before the lease runs dry
    a call finds none                  it waits for one round trip, which all calls and scopes waiting share
    Redis just said no                 refused here for a tenth of a second, so that a flood costs Redis little
    Redis is away                      this process's share of the limit, counted here; told to Redis when it is back

A lease is what half a second of the present demand needs, a twentieth of the limit at most, and a part of what is free
that shrinks as the limit comes near, so that little is out of the others' reach. What is not spent after three
quarters of a second goes back. Limits under 60 a minute lease nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway.pipeline.ports import Limit, Verdict
from gateway.runtime.permits import LEASE_S, WINDOW_S, Ask, Grant, Scope
from gateway.runtime.shared import Away, Script, Shared

log = logging.getLogger(__name__)

SWEEP_S: Final = 0.125

# KEYS: one hash a scope, second -> permits. ARGV: live processes, then for each scope its limit, permits needed,
# permits wished for on top, and the number of corrections, each a second and a difference. A second <= 0 is an age.
_TAKE = Script("""
local time = redis.call('TIME')
local now = tonumber(time[1])
local answer = {now, tonumber(time[2])}
local at = 2
local function argument() at = at + 1; return tonumber(ARGV[at - 1]) end
for _, key in ipairs(KEYS) do
  local limit, needed, wished, corrections = argument(), argument(), argument(), argument()
  local counts, stored = {}, redis.call('HGETALL', key)
  for i = 1, #stored, 2 do
    local second = tonumber(stored[i])
    if second <= now - 62 then redis.call('HDEL', key, stored[i]) else counts[second] = tonumber(stored[i + 1]) end
  end
  for _ = 1, corrections do
    local second, difference = argument(), argument()
    if second <= 0 then second = now + second end
    if second > now - 62 and (difference > 0 or counts[second]) then
      counts[second] = math.max(0, (counts[second] or 0) + difference)
      redis.call('HSET', key, second, counts[second])
    end
  end
  local used, oldest, newest = 0, nil, now
  for second, count in pairs(counts) do
    if count > 0 then
      used = used + count
      oldest = math.min(oldest or second, second)
      newest = math.max(newest, second)
    end
  end
  local free = math.max(0, limit - used)
  local granted = math.min(needed, free)
  granted = granted + math.min(wished, math.floor((free - granted) / (2 * tonumber(ARGV[1]))))
  if granted > 0 then redis.call('HINCRBY', key, now, granted) end
  redis.call('EXPIRE', key, newest - now + 63)
  answer[#answer + 1] = granted
  answer[#answer + 1] = free - granted
  answer[#answer + 1] = (oldest or now) + 62
  answer[#answer + 1] = newest + 62
end
return answer
""")


class RedisLimiter:
    """Implements `pipeline.ports.Limiter`. `shared` must be started before and closed after it."""

    def __init__(self, shared: Shared, clock: Callable[[], float] = time.monotonic) -> None:
        self._shared = shared
        self._clock = clock
        self._scopes: dict[str, Scope] = {}
        self._live: set[Scope] = set()  # those that a sweep must look at
        self._dirty: dict[Scope, None] = {}  # those with something to ask or tell
        self._asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        loops = (self._flush_on(), self._sweep_on())
        self._tasks = [asyncio.create_task(loop, name="limits") for loop in loops]

    async def close(self) -> None:
        """Give every lease back. Calls that come later get this process's share."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for scope in self._scopes.values():
            while scope.leases:
                scope.retire()
        await self._flush([*self._scopes.values()])

    def try_take(self, limit: Limit) -> Verdict | None:
        """A permit, or a refusal, without waiting; None when only `take` can tell."""
        scope = self._scopes.get(limit.scope)
        if scope is None:
            scope = self._scopes[limit.scope] = Scope(limit)
        scope.limit = limit
        now = self._clock()
        while scope.leases:
            lease = scope.leases[0]
            if lease.left and now < lease.expires_s:
                lease.left -= 1
                scope.held -= 1
                scope.spent += 1
                if scope.held < scope.low:
                    scope.is_wanting = True
                    self._ask(scope)
                return Verdict(True, limit, scope.free + scope.held, scope.reset_s - now)
            scope.retire()
        if not self._shared.is_up:
            return self._take_alone(scope, now)
        if now < scope.refused_until_s:
            return scope.refusal(now)
        return None

    async def take(self, limit: Limit) -> Verdict:
        """A permit or a refusal after at most one round trip, which takes 0.25 s at most."""
        verdict = self.try_take(limit)
        if verdict is not None:
            return verdict
        scope = self._scopes[limit.scope]
        if not self._tasks:
            return self._take_alone(scope, self._clock())
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        scope.waiting.append(future)
        scope.is_wanting = True
        self._ask(scope)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.result().is_allowed:  # granted in the moment the call was cancelled
                self.give_back(limit)
            raise

    def give_back(self, limit: Limit) -> None:
        """Return a permit to the oldest second it can be of: in a younger one it would be missing for too long."""
        scope = self._scopes[limit.scope]
        if not self._shared.is_up:
            scope.enter(self._clock())
            scope.window.give_back()
            if scope.untold:
                scope.untold[max(scope.untold)] -= 1  # may go below none: then Redis counted it before it went away
        elif scope.seconds:
            scope.returns[scope.seconds[0]] += 1
            self._live.add(scope)

    def _take_alone(self, scope: Scope, now: float) -> Verdict:
        self._live.add(scope)  # until Redis is told
        return scope.take_alone(self._shared.processes, now)

    def _ask(self, scope: Scope) -> None:
        self._dirty[scope] = None
        self._asked.set()

    async def _flush_on(self) -> None:
        """One round trip at a time: what is asked during one goes together into the next."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            scopes, self._dirty = [*self._dirty], {}
            try:
                await self._flush(scopes)
            except Exception:  # a background loop: the calls were answered, the next round may do better
                log.exception("asking for permits failed")

    async def _flush(self, scopes: Sequence[Scope]) -> None:
        """Ask for all of `scopes` at once, and answer every call that waits for one of them."""
        sent_s = self._clock()
        asks = [ask for scope in scopes if (ask := scope.draw_up(sent_s)) is not None]
        try:
            if asks and self._shared.is_up:
                keys = [f"igw:rate:{ask.scope.limit.scope}" for ask in asks]
                values = [value for ask in asks for value in ask.values]
                self._hear(asks, await self._shared.run(_TAKE, keys, self._shared.processes, *values), sent_s)
        except Away:
            pass
        finally:
            for ask in asks:
                if not ask.is_heard:
                    ask.scope.untold.update(ask.untold)
                for future in ask.waiting:
                    if not future.done():
                        future.set_result(self._take_alone(ask.scope, self._clock()))

    def _hear(self, asks: Sequence[Ask], answer: list[int], sent_s: float) -> None:
        second, micros, *rest = answer
        now = self._clock()
        zero_s = now - second - micros / 1e6  # Redis's epoch on this process's clock
        for at, ask in enumerate(asks):
            ask.is_heard = True
            granted, free, oldest, newest = rest[4 * at : 4 * at + 4]
            grant = Grant(second, granted, free, sent_s + LEASE_S, zero_s + oldest, zero_s + newest)
            ask.scope.hear(ask.waiting, grant, now)
            self._live.add(ask.scope)

    async def _sweep_on(self) -> None:
        swept_s = forgot_s = self._clock()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self._clock()
            for scope in [*self._live]:
                scope.sweep(now - swept_s, now)
                if self._shared.is_up and (scope.returns or scope.untold):
                    self._ask(scope)
                elif scope.is_quiet:
                    self._live.discard(scope)
            swept_s = now
            if now - forgot_s >= WINDOW_S:
                forgot_s = now
                self._scopes = {
                    name: scope
                    for name, scope in self._scopes.items()
                    if scope in self._live or scope.waiting or scope.window.used(now)
                }
