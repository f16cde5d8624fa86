"""The end of most choices: the candidate whose first term is the lowest."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.routing.policy import Terms
from gateway.routing.worker import Worker


def lowest(candidates: Sequence[Worker], terms: Sequence[Terms]) -> Worker:
    """The candidate with the lowest first term; on a tie the one chosen longest ago, then the first."""
    chosen, least = candidates[0], terms[0][0]
    for worker, its in zip(candidates, terms, strict=True):
        cost = its[0]
        if cost < least or (cost == least and worker.turn < chosen.turn):
            chosen, least = worker, cost
    return chosen
