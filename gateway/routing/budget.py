"""Whether a call may be tried again: retries must help against one bad worker and must not feed an overload.

A pool may spend on retries a share of its calls of the last 10 s, and a few at once beyond that. Retries are off while
the pool as a whole fails: more than a tenth of the attempts at workers whose breaker is closed, the worst of them left
out, since one bad worker is what retries are for; or no breaker is closed at all. A connection that was refused cost
the worker nothing and is free.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.routing.options import RetryOptions
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerId
from gateway.routing.window import SPAN_S, Window

_FAILING = 0.1
_SAMPLE = 10  # attempts below which a share says nothing

Counts = dict[WorkerId, list[int]]  # attempts that said something, and the failures among them


class RetryBudget:
    """One pool's. `options` may be replaced and act at the next question."""

    __slots__ = ("_before", "_calls", "_running", "_since", "_young", "options")

    def __init__(self, options: RetryOptions) -> None:
        self.options = options
        self._calls = Window()  # good: calls, bad: retries
        self._running = 0  # retries
        self._young: Counts = {}  # attempts of the last 5 s or less, and of the 5 s before
        self._before: Counts = {}
        self._since = 0.0

    def called(self, now: float) -> None:
        """A call began its first attempt."""
        self._calls.add(now, is_good=True)

    def attempted(self, worker: WorkerId, signal: Signal, now: float) -> None:
        """An attempt ended."""
        if signal is Signal.NEUTRAL:
            return
        self._age(now)
        counts = self._young.get(worker)
        if counts is None:
            counts = self._young[worker] = [0, 0]
        counts[0] += 1
        counts[1] += signal is Signal.FAILURE

    def permits(self, now: float, closed: Collection[WorkerId]) -> bool:
        """Whether a retry may begin that is not free. `closed`: the workers whose breaker is."""
        calls, retries = self._calls.totals(now)
        has_budget = self._running < self.options.concurrent or retries < calls * self.options.budget_percent / 100
        return has_budget and not self.is_failing(now, closed)

    def is_failing(self, now: float, closed: Collection[WorkerId]) -> bool:
        """Whether the pool as a whole fails."""
        if not closed:
            return True
        self._age(now)
        totals = []
        for worker in closed:
            young, before = self._young.get(worker, (0, 0)), self._before.get(worker, (0, 0))
            totals.append((young[1] + before[1], young[0] + before[0]))
        if len(totals) > 1:
            totals.remove(max(totals))
        attempts = sum(total for _, total in totals)
        return attempts >= _SAMPLE and sum(failures for failures, _ in totals) > _FAILING * attempts

    def began(self, now: float) -> None:
        """A retry begins; `ended` is owed."""
        self._running += 1
        self._calls.add(now, is_good=False)

    def ended(self) -> None:
        """A retry is over."""
        self._running -= 1

    def _age(self, now: float) -> None:
        half_s = SPAN_S / 2
        if now - self._since >= half_s:
            self._before = self._young if now - self._since < SPAN_S else {}
            self._young = {}
            self._since = now
