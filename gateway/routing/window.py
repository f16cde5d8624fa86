"""Counts of good and bad over the last 10 seconds, in 10 exact buckets. An average would hide bursts."""

from __future__ import annotations

SPAN_S = 10


class Window:
    """Two counts that forget. Times are monotonic seconds and do not run backwards."""

    __slots__ = ("_bad", "_good", "_second")

    def __init__(self) -> None:
        self._second = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._good = [0] * SPAN_S
        self._bad = [0] * SPAN_S

    def add(self, now: float, *, is_good: bool) -> None:
        """Count one."""
        second = int(now)
        if second != self._second:
            self._turn(second)
        (self._good if is_good else self._bad)[second % SPAN_S] += 1

    def totals(self, now: float) -> tuple[int, int]:
        """How many good and how many bad ones there were."""
        second = int(now)
        if second != self._second:
            self._turn(second)
        return sum(self._good), sum(self._bad)

    def _turn(self, second: int) -> None:
        for passed in range(max(self._second + 1, second - SPAN_S + 1), second + 1):
            self._good[passed % SPAN_S] = self._bad[passed % SPAN_S] = 0
        self._second = max(self._second, second)
