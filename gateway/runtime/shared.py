"""A process's line to Redis: the client, whether Redis answers, and how many gateway processes there are.

    up    commands go out; a heartbeat each second keeps this process in the registry
    down  nothing is asked (callers have their own way without Redis); a heartbeat is tried every quarter second

up turns down with the first command that fails or takes longer than it may; down turns up with a heartbeat that
succeeds. The heartbeat writes, so a Redis that only reads (a replica, a full disk) counts as down.

Every command has its own connection out of the pool while it runs. One that was cancelled or took too long leaves its
connection closed, because an answer still under way would be taken for that of the next command (CVE-2023-28858).
Commands are never repeated: a permit might be taken twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

log = logging.getLogger(__name__)

CONNECT_S = 0.5
OPERATION_S = 0.25  # what a call may have to wait once for a Redis that hangs
HEARTBEAT_S = 1.0
RETRY_S = 0.25


class Away(Exception):
    """Redis gave no usable answer in time."""


class Script:
    """A Lua script, sent by its digest once Redis knows it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


# A process that missed three beats is gone. Redis's clock decides: those of the hosts may differ.
_HEARTBEAT = Script("""
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 4)
redis.call('EXPIRE', KEYS[1], 60)
return redis.call('ZCARD', KEYS[1])
""")
_PROCESSES = "igw:processes"


class Shared:
    """Started and closed with the process. `processes` is the last known number of live ones, this one included."""

    def __init__(self, url: str) -> None:
        self.is_up = False
        self.processes = 1
        self.process_id = uuid.uuid4().hex
        self._heart: asyncio.Task[None] | None = None
        self._redis = Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=None,  # `ask` bounds the whole command, which costs no task per write
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,  # no CLIENT SETINFO, which 6.2 does not know
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )

    async def start(self) -> None:
        """Try Redis once, then keep trying in the background."""
        await self._beat()
        self._heart = asyncio.create_task(self._beat_on(), name="redis heartbeat")

    async def close(self) -> None:
        """Leave the registry and close every connection."""
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait({self._heart})
        if self.is_up:
            try:
                await self.ask("ZREM", _PROCESSES, self.process_id)
            except Away:
                pass  # the others forget this process by themselves
        self.is_up = False
        await self._redis.aclose()

    async def ask(self, *command: str | bytes | int | float, timeout_s: float = OPERATION_S) -> Any:
        """The answer to one command. Raises `Away`, after which `is_up` is false."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]  # so in redis
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            self._went_down(error)
            raise Away from error

    async def run(self, script: Script, keys: Sequence[str], *values: str | bytes | int | float) -> Any:
        """The answer of a script. Raises `Away` as `ask` does."""
        try:
            return await self.ask("EVALSHA", script.digest, len(keys), *keys, *values)
        except NoScriptError:
            return await self.ask("EVAL", script.text, len(keys), *keys, *values)

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[PubSub]:
        """A subscription on a connection of its own, closed at the end of the block. Raises `Away` in and out of it."""
        subscription = self._redis.pubsub(ignore_subscribe_messages=True)
        try:
            async with asyncio.timeout(CONNECT_S + OPERATION_S):
                await subscription.subscribe(channel)
                await subscription.get_message(timeout=OPERATION_S)  # the confirmation: from now on nothing is missed
            yield subscription
        except (RedisError, OSError) as error:
            raise Away from error
        finally:
            await subscription.aclose()  # type: ignore[no-untyped-call]

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S if self.is_up else RETRY_S)
            await self._beat()

    async def _beat(self) -> None:
        timeout_s = OPERATION_S if self.is_up else CONNECT_S + OPERATION_S
        try:
            script = ("EVAL", _HEARTBEAT.text, 1, _PROCESSES, self.process_id)
            self.processes = int(await self.ask(*script, timeout_s=timeout_s))
        except Away:
            return
        if not self.is_up:
            self.is_up = True
            log.info("redis answers", extra={"fields": {"processes": self.processes}})

    def _went_down(self, error: Exception) -> None:
        if self.is_up:
            self.is_up = False
            log.warning("redis does not answer", extra={"fields": {"error": type(error).__name__}})
