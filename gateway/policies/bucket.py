"""`bucket`: calls of like length go to the same worker, so that short ones do not wait behind long ones.

Each worker has a range of prompt lengths, in the pool's order. The ranges are cut so that each would have had the same
sum of lengths of what came lately, at first into equal parts of 4096. When the workers' sums of the last interval lie
too far apart, or the range's worker cannot take the call, it is not the range that decides: the worker with the least
sum, or the one with the nearest range.

Lengths are bytes of the prompt, which are characters of plain text and four for a token id.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.ranking import lowest
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker

_FIRST_SPAN = 4096  # bytes that are shared out before anything was seen
_REMEMBERED = 2048  # calls; sorting them takes well under a millisecond, and more would cut no better


@dataclass(frozen=True, slots=True)
class BucketOptions:
    adjust_interval_s: float = option(
        5.0, "How often the ranges are cut anew, and how far back sums reach", unit="s", minimum=0.1, maximum=3600
    )
    balance_abs: int = option(
        64,
        "The least loaded worker is taken when the sums differ by more than this",
        unit="bytes",
        minimum=0,
        maximum=1_000_000_000,
    )
    balance_rel: float = option(
        1.5, "And when the greatest is more than so many times the least", minimum=1, maximum=1000
    )


@dataclass(frozen=True, slots=True)
class _Sent:
    at: float
    worker: Worker
    length: int


class Bucket(Policy):
    __slots__ = ("_adjusted_at", "_options", "_places", "_sent", "_starts", "_sums")

    term_names = ("sent_bytes", "range_from_bytes")

    def __init__(self, options: BucketOptions) -> None:
        self._options = options
        self._places: dict[Worker, int] = {}  # which range is whose
        self._starts: list[int] = []  # of the ranges but the first, which starts at 0
        self._sent: deque[_Sent] = deque()  # of the last interval
        self._sums: dict[Worker, int] = {}  # of `_sent`
        self._adjusted_at: float | None = None

    def keep(self, workers: Sequence[Worker]) -> None:
        """Cuts the ranges anew when the number of workers changed; else they stay, in the new order."""
        is_same_number = len(workers) == len(self._places)
        self._places = {worker: at for at, worker in enumerate(workers)}
        if not is_same_number:
            self._starts = [_FIRST_SPAN * at // len(workers) for at in range(1, len(workers))]
            self._cut()
        self._sent = deque(sent for sent in self._sent if sent.worker in self._places)
        self._sums = {worker: self._sums.get(worker, 0) for worker in workers}

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate whose range the length is in, or nearest to; the one with the least sum when out of balance."""
        sums, starts, places = self._sums_at(now), [0, *self._starts], self._places
        terms = [(sums[worker], starts[places[worker]]) for worker in candidates]
        least, most = min(terms)[0], max(terms)[0]
        if most - least > self._options.balance_abs and most > self._options.balance_rel * least:
            return lowest(candidates, terms), terms
        wanted = bisect_right(self._starts, len(need.facts.prompt))
        nearest = [(abs(places[worker] - wanted), sums[worker]) for worker in candidates]
        return candidates[nearest.index(min(nearest))], terms

    def taken(self, worker: Worker, need: Need, now: float) -> None:
        """Counts the length, forgets what is older than an interval and cuts the ranges when it is time."""
        length = len(need.facts.prompt)
        self._sent.append(_Sent(now, worker, length))
        self._sums[worker] += length
        since = now - self._options.adjust_interval_s
        while self._sent[0].at < since or len(self._sent) > _REMEMBERED:
            old = self._sent.popleft()
            self._sums[old.worker] -= old.length
        if self._adjusted_at is None:
            self._adjusted_at = now
        elif self._adjusted_at <= since:
            self._adjusted_at = now
            self._cut()

    def _sums_at(self, now: float) -> Mapping[Worker, int]:
        since = now - self._options.adjust_interval_s
        if not self._sent or self._sent[0].at >= since:
            return self._sums
        sums = dict(self._sums)
        for old in self._sent:
            if old.at >= since:
                break
            sums[old.worker] -= old.length
        return sums

    def _cut(self) -> None:
        """Each range gets the same part of the sum of all lengths that were seen; too few calls change nothing."""
        count = len(self._places)
        lengths = sorted(sent.length for sent in self._sent)
        sums = list(accumulate(lengths, initial=0))
        if len(lengths) >= count and sums[-1]:
            self._starts = [_start(lengths, sums, sums[-1] * at // count) for at in range(1, count)]


def _start(lengths: Sequence[int], sums: Sequence[int], below: int) -> int:
    """Where a range begins below which the lengths sum up to `below`, as nearly as equal lengths allow."""
    length = lengths[bisect_right(sums, below) - 1]
    without, within = sums[bisect_left(lengths, length)], sums[bisect_right(lengths, length)]
    return length if below - without <= within - below else length + 1
