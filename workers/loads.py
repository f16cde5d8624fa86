"""Where a worker says its load, and what it says there: one `LoadReader` for each worker whose pool's policy wants it.

At first every source is tried in turn, and the one that answers is asked from then on. When it no longer does, all are
tried again. A worker that answered none is asked once a minute, one source after the other.
"""

from __future__ import annotations

import time
from dataclasses import replace

from gateway.protocol.loads import LIMIT_BYTES, SOURCES
from gateway.routing.worker import LoadReport
from gateway.upstream.probe import Probe, fetch
from gateway.upstream.wire import Wire

READERS = frozenset({"least_load", "power_of_two", "cache_aware"})  # the policies that look at load reports
PAUSE_S = 60.0


class LoadReader:
    """What is known of one worker's sources. `wants` it is asked for a report before each `read`; one at a time."""

    def __init__(self) -> None:
        self._sources = list(SOURCES)  # the one to ask first in front
        self._due_s = 0.0
        self._tries = len(SOURCES)

    def wants(self, now: float) -> bool:
        """Whether the worker may be asked now."""
        return now >= self._due_s

    async def read(self, wire: Wire, probe: Probe, now: float) -> LoadReport | None:
        """Ask; None: no report was to be had. The probe says where and how; its path is not used."""
        for _ in range(self._tries):
            source = self._sources[0]
            body = await fetch(wire, replace(probe, path=source.path), LIMIT_BYTES)
            figures = None if body is None else source.read(body)
            if figures is not None:
                self._tries, self._due_s = len(SOURCES), 0.0
                return LoadReport(time.time(), **figures)
            self._sources.append(self._sources.pop(0))
        self._tries, self._due_s = 1, now + PAUSE_S
        return None
