"""How many calls there were in the last minute: what a process limits itself by while Redis is away.

Calls are counted by whole seconds of the process's clock. Two calls less than 60 s apart lie in seconds that differ by
60 at most, so with 61 seconds counted no 60 s ever see more than is allowed; a call is forgotten after 60 to 61 s.
Permits that several processes share through Redis are runtime/limits' business.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_SECONDS: Final = 61


class RollingWindow:
    """Calls of the last minute. Times are monotonic seconds and never go back."""

    __slots__ = ("_counts", "_used")

    def __init__(self) -> None:
        self._counts: deque[list[int]] = deque()  # [second, calls], oldest first, only seconds with a call
        self._used = 0

    def used(self, now: float) -> int:
        """Calls that count now."""
        self._forget(now)
        return self._used

    def add(self, calls: int, now: float) -> None:
        """Count calls made now; whether they were allowed is the caller's business."""
        self._forget(now)
        second = int(now)
        if self._counts and self._counts[-1][0] == second:
            self._counts[-1][1] += calls
        else:
            self._counts.append([second, calls])
        self._used += calls

    def give_back(self) -> None:
        """Uncount the latest call."""
        if self._counts:
            self._used -= 1
            self._counts[-1][1] -= 1
            if not self._counts[-1][1]:
                self._counts.pop()

    def free_in(self, calls: int, now: float) -> float:
        """Time until so many of the counted calls are forgotten; all of them, when fewer are counted."""
        self._forget(now)
        until = now
        for second, count in self._counts:
            if calls <= 0:
                break
            calls -= count
            until = second + _SECONDS
        return until - now

    def _forget(self, now: float) -> None:
        oldest = int(now) - _SECONDS + 1
        while self._counts and self._counts[0][0] < oldest:
            self._used -= self._counts.popleft()[1]
