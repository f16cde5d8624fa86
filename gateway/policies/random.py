"""`random`: any worker, each as likely as the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.pool import Worker
from gateway.routing.requirement import Requirement


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """Nothing to set."""


class RandomChoice:
    """`random` gives numbers in [0, 1)."""

    __slots__ = ("_random",)

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random

    def choose(self, candidates: Sequence[Worker], need: Requirement) -> Worker:
        """Any candidate."""
        return candidates[int(self._random() * len(candidates))]
