"""`power_of_two`: two workers drawn at random, and of these the one with less to do.

What there is to do is told by the workers where both have lately (KV memory in use, else queued prompt tokens); else,
and on a tie, by the calls in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.reports import Reports
from gateway.routing.requirement import Need
from gateway.routing.worker import LoadReport, Worker

_NOT_DRAWN = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class PowerOfTwoOptions:
    stale_s: float = option(
        30.0, "Age from which a worker's own word on its load counts no more", unit="s", minimum=1, maximum=3600
    )


class PowerOfTwo(Policy):
    """`random` gives numbers in [0, 1)."""

    __slots__ = ("_random", "_reports")

    term_names = ("token_load", "calls", "is_drawn")

    def __init__(self, options: PowerOfTwoOptions, random: Callable[[], float]) -> None:
        self._random = random
        self._reports = Reports(options.stale_s)

    def keep(self, workers: Sequence[Worker]) -> None:
        self._reports.keep(workers)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The less loaded of two candidates; the terms of the others are 0."""
        count = len(candidates)
        first = int(self._random() * count)
        second = (first + 1 + int(self._random() * (count - 1))) % count  # another one, if there is another
        one, other = candidates[first], candidates[second]
        tokens = _tokens(self._reports.current(one, now), self._reports.current(other, now))
        terms: list[Terms] = [_NOT_DRAWN] * count
        terms[first] = (tokens[0], one.load, 1.0)
        terms[second] = (tokens[1], other.load, 1.0)
        return (other if terms[second] < terms[first] else one), terms

    def taken(self, worker: Worker, need: Need, now: float) -> None:
        self._reports.notice(now)


def _tokens(one: LoadReport | None, other: LoadReport | None) -> tuple[float, float]:
    """The token loads of both in the same unit; 0 and 0 where there is none that both have told."""
    if one is not None and other is not None:
        if one.cache_use is not None and other.cache_use is not None:
            return one.cache_use, other.cache_use
        if one.queued_tokens is not None and other.queued_tokens is not None:
            return one.queued_tokens, other.queued_tokens
    return 0.0, 0.0
