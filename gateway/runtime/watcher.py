"""Following the configuration: every process of the gateway runs one Watcher and serves what it hands on.

It loads at its start, then whenever the bell rings and the newest revision is another, and looks every `poll_s` in case
the bell was missed or Redis is away. A configuration that cannot be used, or a database that cannot be reached, leaves
the last good snapshot in place and is tried again at every poll; `status` says why. Database work runs on one
thread of its own, which keeps one connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import redis
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.routing.options import Problem
from gateway.routing.snapshot import Snapshot
from gateway.runtime.bell import CHANNEL
from gateway.runtime.builder import ConfigError, build_newest
from gateway.runtime.rows import newest_revision

_CONNECT_S = 2.0
_QUIET_S = 15.0
_PAUSE_S = (0.2, 5.0)  # before the bell's connection is made anew: first, longest

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class WatcherStatus:
    """What a process runs on. `last_error` is empty when that is the newest revision."""

    revision: int | None = None  # None: nothing was loaded yet
    last_error: list[Problem] = field(default_factory=list)
    last_change_unix_s: float | None = None


class Watcher:
    """Hands every new snapshot to `on_snapshot`, on the event loop; one that says the same as the last is not new."""

    def __init__(self, on_snapshot: Callable[[Snapshot], None], redis_url: str, poll_s: float = 5.0) -> None:
        self.status = WatcherStatus()
        self._on_snapshot = on_snapshot
        self._redis_url = redis_url
        self._poll_s = poll_s
        self._rung = asyncio.Event()
        self._snapshot: Snapshot | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="igw-watcher")

    async def run(self) -> None:
        """Load and follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                while True:
                    await self.refresh()
                    await self._wait()
        finally:
            closing = asyncio.get_running_loop().run_in_executor(self._thread, connections.close_all)
            self._thread.shutdown(wait=False)
            await asyncio.wait([closing], timeout=_CONNECT_S)

    async def refresh(self, *, reload: bool = False) -> None:
        """Take up the newest revision if it is another than the last, or that one failed; with `reload` in any case."""
        self._rung.clear()
        try:
            newest = await self._in_thread(newest_revision)
            if reload or self.status.last_error or newest != self.status.revision:
                self._take(await self._in_thread(build_newest))
            self.status.last_error = []
        except ConfigError as error:
            self._failed(error.problems)
        except DatabaseError as error:
            self._failed([Problem("", f"the database cannot be read ({type(error).__name__})")])
        except Exception as error:  # a background loop: whatever is wrong with one revision, the next may be good
            log.exception("the configuration could not be loaded")
            self._failed([Problem("", f"an error in the gateway itself ({type(error).__name__}); see the log")])

    def _take(self, snapshot: Snapshot) -> None:
        self.status.revision = snapshot.revision
        if self._snapshot is not None and replace(snapshot, revision=self._snapshot.revision) == self._snapshot:
            return
        self._snapshot = snapshot
        self.status.last_change_unix_s = time.time()
        self._on_snapshot(snapshot)
        log.info(
            "configuration loaded", extra={"fields": {"revision": snapshot.revision, "pools": len(snapshot.pools)}}
        )

    def _failed(self, problems: list[Problem]) -> None:
        if problems != self.status.last_error:
            log.error(
                "the configuration cannot be used",
                extra={"fields": {"problems": [str(problem) for problem in problems]}},
            )
        self.status.last_error = problems

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                await self._rung.wait()
        except TimeoutError:
            pass

    async def _listen(self) -> None:
        """Hear the bell; while Redis is away, try again and again."""
        pause_s = _PAUSE_S[0]
        while True:
            client = Redis.from_url(
                self._redis_url, socket_connect_timeout=_CONNECT_S, socket_timeout=None, retry=Retry(NoBackoff(), 0)
            )
            try:
                async with client, client.pubsub() as pubsub:
                    await pubsub.subscribe(CHANNEL)
                    pause_s = _PAUSE_S[0]
                    await self._hear(pubsub)
            except (redis.RedisError, OSError) as error:
                log.debug("the revision bell is away", extra={"fields": {"reason": type(error).__name__}})
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S[1])

    async def _hear(self, pubsub: PubSub) -> None:
        """Until the connection breaks, or is silent although it was asked: then Redis went without a word."""
        is_asked = False
        while True:
            message = await pubsub.get_message(timeout=_QUIET_S)
            if message is not None:
                is_asked = False
                self._rung.set()  # also once subscribed: something may have rung before
            elif is_asked:
                raise redis.TimeoutError("no answer to a ping")
            else:
                is_asked = True
                await pubsub.ping()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, _with_fresh_connection, work)


def _with_fresh_connection(work: Callable[[], T]) -> T:
    """Django closes broken and old connections at the ends of web requests; here this is the end of a job."""
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()
