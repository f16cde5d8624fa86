"""`least_requests`: the worker with the fewest calls of this process in flight; on a tie the one chosen longest ago."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.pool import Worker
from gateway.routing.requirement import Requirement


@dataclass(frozen=True, slots=True)
class LeastRequestsOptions:
    """Nothing to set."""


class LeastRequests:
    __slots__ = ()

    def choose(self, candidates: Sequence[Worker], need: Requirement) -> Worker:
        """The candidate with the fewest calls in flight."""
        chosen = candidates[0]
        for worker in candidates:
            if worker.in_flight < chosen.in_flight or (
                worker.in_flight == chosen.in_flight and worker.turn < chosen.turn
            ):
                chosen = worker
        return chosen
