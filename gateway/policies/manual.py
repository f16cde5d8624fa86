"""`manual`: the calls of one key stay with one worker, from which nothing but its absence takes them.

The key is the call's routing key, or else its conversation. A key that is new, or whose workers cannot take the call,
gets a worker by the assignment mode; so does a call without a key, of which nothing is remembered. Nothing is spread
anew when workers are added. What this process does not know of a key, others may: see runtime/stickies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.requirement import Need
from gateway.routing.sticky import StickyMap, digest
from gateway.routing.worker import Worker

RANDOM, MIN_LOAD, MIN_GROUP = "random", "min_load", "min_group"


@dataclass(frozen=True, slots=True)
class ManualOptions:
    assignment_mode: str = option(
        RANDOM,
        "Who gets a new key: anyone, whoever has the fewest calls in flight, or whoever has the fewest keys",
        choices=(RANDOM, MIN_LOAD, MIN_GROUP),
    )
    max_idle_s: float = option(
        14_400.0, "A key that was not used for so long is forgotten", unit="s", minimum=1, maximum=2_592_000
    )
    max_keys: int = option(
        100_000,
        "Keys remembered; beyond that the one used longest ago is forgotten",
        unit="keys",
        minimum=1,
        maximum=1_000_000,
    )


class Manual(Policy):
    """`random` gives numbers in [0, 1). `memory` holds the keys' digests and is shared between processes."""

    __slots__ = ("_mode", "_random", "memory")

    term_names = ("is_remembered", "calls", "keys")
    remembers_keys = True

    def __init__(self, options: ManualOptions, random: Callable[[], float]) -> None:
        self.memory = StickyMap(options.max_idle_s, options.max_keys)
        self._mode = options.assignment_mode
        self._random = random

    def key_of(self, need: Need) -> str | None:
        """The digest of what the call is kept together by."""
        key = need.routing_key or need.conversation
        return digest(key) if key else None

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The first of the key's workers that is a candidate, else one by the assignment mode."""
        memory, key = self.memory, self.key_of(need)
        remembered = memory.get(key, now) if key else ()
        ids = [worker.spec.id for worker in candidates]
        terms = [
            (float(worker_id in remembered), worker.load, memory.keys_of(worker_id))
            for worker, worker_id in zip(candidates, ids, strict=True)
        ]
        for worker_id in remembered:
            if worker_id in ids:
                return candidates[ids.index(worker_id)], terms
        return self._assign(candidates, terms), terms

    def taken(self, worker: Worker, need: Need, now: float) -> None:
        """The key has this worker too, if it had not."""
        key = self.key_of(need)
        if key:
            self.memory.served(key, worker.spec.id, now)

    def _assign(self, candidates: Sequence[Worker], terms: Sequence[Terms]) -> Worker:
        if self._mode == RANDOM:
            return candidates[int(self._random() * len(candidates))]
        term = 1 if self._mode == MIN_LOAD else 2
        best = min(range(len(candidates)), key=lambda at: (terms[at][term], candidates[at].turn))
        return candidates[best]
