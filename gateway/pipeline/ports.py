"""What the pipeline needs from outside and does not know how to do: limits, records, probes.

Implementations live in `runtime` and `conversations`; `wiring` puts them together. None of these may make a call wait
for a database or a file; only `Limiter.take` and `StickyMemory.recall` may await a Redis round trip, and say when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.pipeline.exchange import Exchange
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need
from gateway.routing.rest import Rest
from gateway.routing.snapshot import WorkerId


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `per_min` calls of `scope` (`key:12`, `pool:3`) in any 60 seconds, over all processes."""

    scope: str
    per_min: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a limit said. `remaining` is what this process knows; `reset_s` is when the window is whole again."""

    is_allowed: bool
    limit: Limit
    remaining: int
    reset_s: float
    retry_after_s: float = 0.0


class Limiter(Protocol):
    def try_take(self, limit: Limit) -> Verdict | None:
        """One permit out of what this process holds, without waiting; None when `take` must ask the others."""

    async def take(self, limit: Limit) -> Verdict:
        """One permit, asking Redis; without Redis, out of this host's share."""

    def give_back(self, limit: Limit) -> None:
        """Return a permit just taken because another limit refused the same call."""


class Recorder(Protocol):
    def offer(self, exchange: Exchange) -> None:
        """Hand over a finished exchange. Never waits; what a full queue had to refuse is counted and shown."""


class RestNews(Protocol):
    def tell(self, worker: WorkerId, rest: Rest, now: float) -> None:
        """Let the other processes know that a worker rests. Never waits."""


class StickyMemory(Protocol):
    async def recall(self, pool: Pool, need: Need) -> None:
        """Let a policy that remembers keys know what other processes know of this one; returns soon in any case."""


class ProbeNudge(Protocol):
    def nudge(self, worker: WorkerId) -> None:
        """Ask for an immediate probe after a transport failure. Coalesced; never waits."""
