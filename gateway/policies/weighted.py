"""`weighted`: each worker as often as its weight says, exactly over a cycle, and spread over it rather than in blocks.

Stride scheduling: a worker of weight w is due w times in each unit of a virtual time, at (k + 1/2)/w, and whoever is
due first is chosen. While the same workers can be chosen, a cycle of as many choices as the weights add up to holds
each of them exactly as often as its weight says.

The virtual time is where the last choice was due. A worker that was passed over (at its cap, its breaker open) falls
behind it and is caught up with by one stride at most: it makes up for a call or two, not for an absence. A new one
begins at the others' place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.policy import Policy, Terms
from gateway.routing.ranking import lowest
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class WeightedOptions:
    """Nothing to set; the weights are the workers'."""


class Weighted(Policy):
    """Times are whole numbers of which `_unit` make a cycle, so that no rounding adds up."""

    __slots__ = ("_due", "_now", "_unit")

    term_names = ("due_cycles", "weight")

    def __init__(self) -> None:
        self._unit = 1
        self._now = 0
        self._due: dict[Worker, int] = {}

    def keep(self, workers: Sequence[Worker]) -> None:
        """Carries every worker's place over to a unit that all weights divide."""
        before, old_unit, old_now = self._due, self._unit, self._now
        self._unit = 2 * math.lcm(*(worker.spec.weight for worker in workers))  # so that half a stride is whole
        self._now, self._due = 0, {}
        for worker in workers:
            stride, due = self._stride(worker), before.get(worker)
            if due is None:
                self._due[worker] = stride // 2
            else:  # a weight that grew acts from now on, not after the longer stride of the old one
                self._due[worker] = min((due - old_now) * self._unit // old_unit, stride)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate that is due first."""
        unit, time = self._unit, self._now
        terms = [((self._due_of(worker) - time) / unit, worker.spec.weight) for worker in candidates]
        return lowest(candidates, terms), terms

    def taken(self, worker: Worker, need: Need, now: float) -> None:
        """The worker is due again one stride later."""
        due = self._due_of(worker)
        self._now = max(self._now, due)
        self._due[worker] = due + self._stride(worker)

    def _due_of(self, worker: Worker) -> int:
        return max(self._due[worker], self._now - self._stride(worker))

    def _stride(self, worker: Worker) -> int:
        return self._unit // worker.spec.weight
