"""The event loop in which a worker process probes: apart from the data plane, so that traffic cannot fail a probe."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.routing.worker import LoadReport
from gateway.upstream.egress import Egress
from gateway.upstream.probe import Finding, Probe, ask
from gateway.upstream.wire import Wire
from workers.loads import LoadReader

T = TypeVar("T")

log = logging.getLogger(__name__)

AT_ONCE = 256  # probes under way; the others wait, and their time does not run yet


class Prober:
    """An event loop on a thread of its own, with connections of its own, made for the first probe."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wire = Wire(egress=Egress())
        self._gate = asyncio.Semaphore(AT_ONCE)

    def start(self, probe: Probe) -> concurrent.futures.Future[Finding]:
        """Begin a probe; its future is for other threads."""
        return self._run(self._ask(probe))

    def read_load(self, reader: LoadReader, probe: Probe) -> concurrent.futures.Future[LoadReport | None]:
        """Begin to ask for a worker's load, where the probe went; the future is for other threads."""
        return self._run(self._read(reader, probe))

    def _run(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="probes", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _ask(self, probe: Probe) -> Finding:
        async with self._gate:
            try:
                return await ask(self._wire, probe)
            except Exception:  # a background loop: one worker's probe must not end those of the others
                log.exception("a probe failed by itself")
                return Finding(False, "the probe itself failed", 0.0)

    async def _read(self, reader: LoadReader, probe: Probe) -> LoadReport | None:
        async with self._gate:
            try:
                return await reader.read(self._wire, probe, time.monotonic())
            except Exception:  # as above
                log.exception("reading a load failed by itself")
                return None

    def close(self) -> None:
        """End what is under way, and the loop."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        self._loop = None

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._wire.close()
