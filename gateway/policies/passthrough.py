"""`passthrough`: the first worker of the pool that can take the call; the others stand behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.policy import Policy, Terms
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class PassthroughOptions:
    """Nothing to set."""


class Passthrough(Policy):
    __slots__ = ()

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The first candidate."""
        return candidates[0], ()
