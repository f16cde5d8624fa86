"""`round_robin`: the worker that was chosen longest ago.

By recency rather than by a counter modulo n, so that candidates that come and go in step with the calls (caps,
breakers, profiles) never make it fall on the same worker again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.policy import Policy, Terms
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class RoundRobinOptions:
    """Nothing to set."""


class RoundRobin(Policy):
    __slots__ = ()

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate chosen longest ago; among those never chosen the first."""
        chosen = candidates[0]
        for worker in candidates:
            if worker.turn < chosen.turn:
                chosen = worker
        return chosen, ()
