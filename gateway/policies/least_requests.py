"""`least_requests`: the worker with the fewest calls in flight; on a tie the one chosen longest ago."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.policy import Policy, Terms
from gateway.routing.ranking import lowest
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class LeastRequestsOptions:
    """Nothing to set."""


class LeastRequests(Policy):
    __slots__ = ()

    term_names = ("calls",)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate with the fewest calls in flight."""
        terms = [(worker.load,) for worker in candidates]
        return lowest(candidates, terms), terms
