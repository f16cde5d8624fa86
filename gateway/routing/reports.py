"""How old the workers' own words on their load are, by this process's clock.

A report carries the Unix time of whoever asked the worker, and policies know monotonic time only: its age counts from
the first call that met it here. A clock that is set back or forth does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.routing.worker import LoadReport, Worker


class Reports:
    """Remembers when each worker's current report was first seen. Older than `stale_s`, it counts as none."""

    __slots__ = ("_seen", "_stale_s")

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self._seen: dict[Worker, tuple[LoadReport | None, float]] = {}

    def keep(self, workers: Sequence[Worker]) -> None:
        """These are the workers from now on."""
        self._seen = {worker: self._seen.get(worker, (None, 0.0)) for worker in workers}

    def notice(self, now: float) -> None:
        """Look which reports are new. To be called with every call that was sent."""
        for worker, seen in self._seen.items():
            if worker.report is not seen[0]:
                self._seen[worker] = (worker.report, now)  # the key is there: no change of size

    def current(self, worker: Worker, now: float) -> LoadReport | None:
        """A worker's report unless it is stale. One that was not noticed yet is new."""
        report = worker.report
        if report is None:
            return None
        seen, since = self._seen[worker]
        return report if seen is not report or now - since <= self._stale_s else None
