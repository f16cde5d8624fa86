"""Virtual time: what is to happen, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Clock:
    """Runs what was put off, the earliest first; at the same instant in the order in which it was put off."""

    __slots__ = ("_heap", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, time_s: float, what: Callable[..., None], *args: Any) -> None:
        """Do this then."""
        self._number += 1
        heapq.heappush(self._heap, (time_s, self._number, what, args))

    def after(self, delay_s: float, what: Callable[..., None], *args: Any) -> None:
        """Do this so much later."""
        self.at(self.now + delay_s, what, *args)

    def run(self, until: Callable[[], bool]) -> None:
        """Let time pass until this is so, or nothing is left to happen."""
        while self._heap and not until():
            self.now, _, what, args = heapq.heappop(self._heap)
            what(*args)
