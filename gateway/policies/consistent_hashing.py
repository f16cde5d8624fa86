"""`consistent_hashing`: calls with the same key go to the same worker, as long as that one is not overloaded.

The key is the call's routing key, else its conversation, else a field of its body; a call without a key goes anywhere.
Loads are bounded: a worker that has more than its share of the calls in flight is passed over for the next on the ring,
so that a hot key spills over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.ranking import lowest
from gateway.routing.requirement import Need
from gateway.routing.ring import Ring
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class ConsistentHashingOptions:
    field: str | None = option(
        None, "Body field that is the key of calls without routing key and conversation, as `user`; empty: none"
    )
    load_factor: float = option(
        1.25, "A worker may have so many times the mean of the calls in flight; 0: no bound", minimum=0, maximum=1000
    )
    virtual_nodes: int = option(
        150, "Places of each worker on the ring; more spread the keys more evenly", minimum=1, maximum=1000
    )


class ConsistentHashing(Policy):
    """`random` gives numbers in [0, 1)."""

    __slots__ = ("_options", "_random", "_ring")

    term_names = ("calls", "bound_calls")

    def __init__(self, options: ConsistentHashingOptions, random: Callable[[], float]) -> None:
        self._options = options
        self._random = random
        self._ring = Ring(options.virtual_nodes)

    def keep(self, workers: Sequence[Worker]) -> None:
        self._ring.keep(worker.spec.id for worker in workers)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The first candidate clockwise from the key that is within its bound, else the least loaded."""
        key = self._key(need)
        if not key:
            return candidates[int(self._random() * len(candidates))], ()
        loads = [worker.load for worker in candidates]
        total = sum(loads) + 1
        factor = self._options.load_factor
        bound = math.ceil(factor * total / len(loads)) if factor else total
        terms = [(load, bound) for load in loads]
        by_id = {worker.spec.id: worker for worker in candidates}
        for worker_id in self._ring.walk(key.encode("utf-8", "surrogatepass")):
            worker = by_id.get(worker_id)
            if worker is not None and worker.load < bound:
                return worker, terms
        return lowest(candidates, terms), terms

    def _key(self, need: Need) -> str | None:
        name = self._options.field
        return need.routing_key or need.conversation or (need.facts.field(name) if name else None)
