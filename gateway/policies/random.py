"""`random`: any worker, each as likely as the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.policy import Policy, Terms
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """Nothing to set."""


class RandomChoice(Policy):
    """`random` gives numbers in [0, 1)."""

    __slots__ = ("_random",)

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """Any candidate."""
        return candidates[int(self._random() * len(candidates))], ()
