"""A Valkey of a test's own, to be stopped, started and frozen: the shared one of the session must stay up."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import redis

from gateway.launch.embedded import Valkey
from gateway.runtime.lineage import die_with_parent


class OwnValkey:
    """Started at once; `close` it. It keeps nothing over a stop."""

    def __init__(self, state: Path) -> None:
        self._store = Valkey(state, is_durable=False)
        self._store.prepare()
        self.url = self._store.url
        self._child: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        child = self._child = subprocess.Popen(
            self._store.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent(self._store.stop_signal),
            **self._store.options,
        )
        self._store.wait(lambda: child.poll() is None)

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait(10)

    close = stop

    def freeze(self) -> None:
        """It goes on accepting connections, and answers nothing."""
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)


async def until(condition: Callable[[], object], within_s: float = 5.0) -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)
