"""Whether a draining worker is drained: no gateway process, on whichever host, has a call of it in flight any more.

    igw:drains   hash: process id -> "at revision worker,worker ...": the revision that the process runs on, and the
                 draining workers that it has calls of; `born` -> when the hash was begun. In ms of Redis's clock.

A process that runs on a revision in which the worker drains takes no new calls for it: once it has none in flight it
has none until the next revision. So a worker is drained when every process has said, of the newest revision, that it
has no calls of it; how long ago does not matter. After any edit nothing is drained until all have taken it up.

A process that has said nothing for `LOST_S` is taken for crashed, and so are its calls; until then it counts with what
it last said. A hash younger than that may be one that Redis lost and not every process has entered again: then nobody
knows. A process says what it has twice a second, and at its end takes its entry away.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.routing.snapshot import WorkerId, WorkerState
from gateway.routing.worker import Worker
from gateway.runtime.shared import Away, Script, Shared

log = logging.getLogger(__name__)

DRAINS = "igw:drains"
BORN = "born"
LOST_S = 10.0
_TELL_S = 0.5
_PATIENCE_S = 0.5  # a page waits for it

_CLOCK = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""
_TELL = Script(
    _CLOCK
    + """
redis.call('HSETNX', KEYS[1], 'born', string.format('%.0f', now))
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now, ARGV[2]))
local entries = redis.call('HGETALL', KEYS[1])
for i = 1, #entries, 2 do
  local at = tonumber(string.match(entries[i + 1], '^%d+'))
  if entries[i] ~= 'born' and at < now - ARGV[3] then redis.call('HDEL', KEYS[1], entries[i]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
)
_LIST = _CLOCK + "return {string.format('%.0f', now), redis.call('HGETALL', KEYS[1])}"


class DrainState(enum.Enum):
    """How far a worker that an operator drains has come."""

    DRAINING = "draining"  # calls run, or may run as far as anybody knows
    DRAINED = "drained"
    UNKNOWN = "unknown"  # nobody can say: Redis is away, or was a moment ago


class Drains:
    """A process's part: says which draining workers it has calls of. `revision` None: it cannot say what it runs on."""

    def __init__(
        self, shared: Shared, workers: Callable[[], Iterable[Worker]], revision: Callable[[], int | None]
    ) -> None:
        self._shared = shared
        self._workers = workers
        self._revision = revision
        self._is_closed = False

    async def run(self) -> None:
        """Say it until cancelled or closed."""
        while not self._is_closed:
            if self._shared.is_up:
                try:
                    await self._shared.run(_TELL, [DRAINS], self._shared.process_id, self._entry(), int(LOST_S * 1000))
                except Away:
                    pass
            await asyncio.sleep(_TELL_S)

    async def close(self) -> None:
        """No call of this process is left, and none will come: take the entry away."""
        self._is_closed = True
        try:
            if self._shared.is_up:
                await self._shared.ask("HDEL", DRAINS, self._shared.process_id)
        except Away:
            pass  # forgotten after LOST_S

    def _entry(self) -> str:
        """Without awaiting: both parts must be of one moment."""
        revision = self._revision()
        busy = {
            worker.spec.id
            for worker in self._workers()
            if worker.spec.state is WorkerState.DRAINING and worker.in_flight
        }
        return f"{-1 if revision is None else revision} {' '.join(sorted(busy))}"


def drain_states(redis_url: str, workers: Collection[WorkerId], revision: int) -> Mapping[WorkerId, DrainState]:
    """How far these workers have come, which all are draining in `revision`, the newest; for pages and the control API.

    The revision must not have been read before it was seen that they drain.
    """
    if not workers:
        return {}
    try:
        with redis.Redis.from_url(
            redis_url,
            socket_connect_timeout=_PATIENCE_S,
            socket_timeout=_PATIENCE_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        ) as client:
            now, flat = client.eval(_LIST, 1, DRAINS)
    except redis.RedisError as error:
        log.warning("it is unknown which workers are drained", extra={"fields": {"reason": type(error).__name__}})
        return dict.fromkeys(workers, DrainState.UNKNOWN)
    return judge(dict(zip(flat[::2], flat[1::2], strict=True)), workers, revision, int(now))


def judge(
    entries: Mapping[str, str], workers: Collection[WorkerId], revision: int, now_ms: int
) -> Mapping[WorkerId, DrainState]:
    """What the entries of the hash, as of `now_ms`, say of these workers."""
    oldest_ms = now_ms - LOST_S * 1000
    if int(entries.get(BORN, now_ms)) > oldest_ms:
        return dict.fromkeys(workers, DrainState.UNKNOWN)
    busy: set[str] = set()
    for process, entry in entries.items():
        at_ms, *said = entry.split()
        if process == BORN or int(at_ms) < oldest_ms:
            continue
        if int(said[0]) < revision:
            return dict.fromkeys(workers, DrainState.DRAINING)
        busy.update(said[1:])
    return {id: DrainState.DRAINING if id in busy else DrainState.DRAINED for id in workers}
