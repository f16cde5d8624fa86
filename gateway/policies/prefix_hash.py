"""`prefix_hash`: calls whose prompts begin alike go to the same worker, which has that beginning in its cache.

It takes one hash of a fixed length, and nothing is remembered of what was sent. A worker with clearly more calls than
the others is relieved by the least loaded one, which also gets the calls without a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.ranking import lowest
from gateway.routing.requirement import Need
from gateway.routing.ring import Ring
from gateway.routing.worker import Worker

_BYTES_A_TOKEN = 4  # of text about, of token ids exactly


@dataclass(frozen=True, slots=True)
class PrefixHashOptions:
    prefix_tokens: int = option(
        256, "Length of the beginning that is compared", unit="tokens", minimum=1, maximum=1_000_000
    )
    load_factor: float = option(
        1.25, "A worker is relieved beyond so many times the mean of the calls in flight", minimum=0, maximum=1000
    )
    margin: int = option(
        10, "But not while it has at most so many more than the least loaded", unit="calls", minimum=0, maximum=100_000
    )
    virtual_nodes: int = option(
        150, "Places of each worker on the ring; more spread the prompts more evenly", minimum=1, maximum=1000
    )


class PrefixHash(Policy):
    __slots__ = ("_options", "_ring")

    term_names = ("calls", "bound_calls")

    def __init__(self, options: PrefixHashOptions) -> None:
        self._options = options
        self._ring = Ring(options.virtual_nodes)

    def keep(self, workers: Sequence[Worker]) -> None:
        self._ring.keep(worker.spec.id for worker in workers)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate that the beginning belongs to unless it is overloaded, else the least loaded."""
        options = self._options
        loads = [worker.load for worker in candidates]
        bound = max(options.load_factor * (sum(loads) + 1) / len(loads), min(loads) + options.margin)
        terms = [(load, bound) for load in loads]
        beginning = need.facts.prompt[: options.prefix_tokens * _BYTES_A_TOKEN]
        if beginning:
            by_id = {worker.spec.id: worker for worker in candidates}
            owner = next(filter(None, map(by_id.get, self._ring.walk(beginning))), None)
            if owner is not None and owner.load <= bound:
                return owner, terms
        return lowest(candidates, terms), terms
