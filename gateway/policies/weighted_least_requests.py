"""`weighted_least_requests`: the worker that would have the fewest calls for its weight, this one included.

With weights that match what the workers can do, hard to beat; with wrong ones it overloads the weak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.policy import Policy, Terms
from gateway.routing.ranking import lowest
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class WeightedLeastRequestsOptions:
    """Nothing to set; the weights are the workers'."""


class WeightedLeastRequests(Policy):
    __slots__ = ()

    term_names = ("calls_per_weight", "calls", "weight")

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate with the least (calls in flight + 1) / weight."""
        terms = []
        for worker in candidates:
            calls, weight = worker.load, worker.spec.weight
            terms.append(((calls + 1) / weight, calls, weight))
        return lowest(candidates, terms), terms
