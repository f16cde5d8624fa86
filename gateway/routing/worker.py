"""The live state of one worker in this process: what routing knows of it beside its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.routing.breaker import Breaker
from gateway.routing.health import UNSEEN
from gateway.routing.rest import Rest
from gateway.routing.snapshot import WorkerSpec


class Cell(Protocol):
    """Two counts that the processes of a host share. Each process adds to its own part and can read the others' sum."""

    def add(self, calls: int, tokens: int) -> None:
        """Add to this process's part; negative to take away."""

    def other_calls(self) -> int:
        """Calls in flight by the other processes of this host."""

    def other_tokens(self) -> int:
        """Prompt tokens that wait for their first byte by the other processes of this host."""


class _Alone:
    """The Cell of a process that shares with nobody."""

    __slots__ = ()

    def add(self, calls: int, tokens: int) -> None:
        pass

    def other_calls(self) -> int:
        return 0

    def other_tokens(self) -> int:
        return 0


ALONE = _Alone()


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a worker said of its own load, and when (Unix time). None: it did not say."""

    at_unix_s: float
    running: int | None = None  # requests in its batch
    waiting: int | None = None  # requests in its queue
    queued_tokens: int | None = None  # uncached prompt tokens in its queue
    tokens_per_s: float | None = None  # generation throughput
    cache_use: float | None = None  # share of its KV memory in use, 0 to 1


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of its allowance a vendor says is used, 0 to 1, and when it renews (monotonic seconds)."""

    used: float
    renews_at: float


class Worker:
    """One worker. `turn` is its pool's count of choices when it last was chosen, 0 never.

    `in_flight` counts this process's calls in places (a batch takes several); `load` those of the whole host.
    """

    __slots__ = (
        "__weakref__",
        "_ramp",
        "breaker",
        "cell",
        "health",
        "in_flight",
        "quota",
        "refused_until",
        "report",
        "rest",
        "spec",
        "turn",
    )

    def __init__(self, spec: WorkerSpec, breaker: Breaker, cell: Cell = ALONE) -> None:
        self.spec = spec
        self.breaker = breaker
        self.cell = cell
        self.health = UNSEEN
        self.report: LoadReport | None = None
        self.quota: Quota | None = None
        self.rest = Rest()
        self.refused_until = 0.0  # it refused a connection not long before then
        self.in_flight = self.turn = 0
        self._ramp = _Ramp()

    @property
    def load(self) -> int:
        """Calls in flight from all processes of this host."""
        return self.in_flight if self.cell is ALONE else self.in_flight + self.cell.other_calls()

    def is_held_back(self, now: float) -> bool:
        """Whether it has had its share of the pool's calls since its breaker closed."""
        share = self.breaker.share(now)
        return share < 1.0 and self._ramp.taken >= 1 + share * self._ramp.fair

    def counts_in_ramp(self, chosen: bool, siblings: int) -> None:
        """A worker of the pool was chosen while this one is in slow start."""
        ramp, since = self._ramp, self.breaker.slow_since
        if ramp.since != since:
            ramp.since, ramp.taken, ramp.fair = since, 0, 0.0
        ramp.taken += chosen
        ramp.fair += 1 / siblings


@dataclass(slots=True)
class _Ramp:
    """Slow start in numbers: calls taken since the breaker closed, and what would have been a fair share of them."""

    since: float | None = None
    taken: int = 0
    fair: float = 0.0
