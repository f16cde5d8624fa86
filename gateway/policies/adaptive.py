"""`adaptive`: the worker with the best score of weight, calls in flight and time to first byte (TTFT).

    score = K / ((C + 1) * (a * T / base + 1 - a))        the highest wins; ties are broken at random

K is the worker's weight, C its calls in flight, T the mean of its last TTFTs. A worker that failed some times in a row
has score 0 until a call to it succeeds, which may be never: it gets calls only while every score is 0.

Three repairs are off by default, so that the rule can be run as it was published: a worker with score 0 is tried again
after `half_open_s`; a mean that nothing renewed fades back to the initial value (`max_age_s`); ties go by recency.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.requirement import Need
from gateway.routing.retry import Signal
from gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class AdaptiveOptions:
    alpha: float = option(
        0.7, "How much the time to first byte counts; 0: not at all, 1: nothing else does", minimum=0, maximum=1
    )
    base_ttft_ms: float = option(
        50.0, "Time to first byte that changes no score", unit="ms", minimum=0.1, maximum=600_000
    )
    window: int = option(50, "Answers that a worker's mean is taken over", unit="answers", minimum=1, maximum=10_000)
    floor_ms: float = option(10.0, "A mean below this counts as this", unit="ms", minimum=0.01, maximum=600_000)
    initial_ms: float = option(
        100.0, "Mean of a worker that has not answered yet", unit="ms", minimum=0.01, maximum=600_000
    )
    use_weights: bool = option(True, "Count the workers' weights; off: all alike")
    failure_streak: int = option(
        3, "Failures in a row that take a worker's score; 0: never", unit="failures", minimum=0, maximum=10_000
    )
    half_open_s: float = option(
        0.0, "Time after which a worker without score is tried once; 0: never", unit="s", minimum=0, maximum=86_400
    )
    max_age_s: float = option(
        0.0,
        "Age from which a mean fades, over as long again, to the initial value; 0: never",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    ties_by_recency: bool = option(False, "Break ties by who was chosen longest ago instead of at random")


class _Learnt:
    """What is known of one worker. `retry_at` is when one without score may be tried."""

    __slots__ = ("_samples_ms", "_sum_ms", "failures", "retry_at", "sampled_at", "url")

    def __init__(self, url: str, window: int) -> None:
        self.url = url
        self.failures = 0  # in a row
        self.retry_at = 0.0
        self.sampled_at = 0.0
        self._samples_ms: deque[float] = deque(maxlen=window)
        self._sum_ms = 0.0

    def add(self, ttft_ms: float, now: float) -> None:
        samples = self._samples_ms
        if len(samples) == samples.maxlen:
            self._sum_ms -= samples[0]
        samples.append(ttft_ms)
        self._sum_ms += ttft_ms
        self.sampled_at = now

    @property
    def mean_ms(self) -> float | None:
        return self._sum_ms / len(self._samples_ms) if self._samples_ms else None


class _Attempt:
    """The Track of one call."""

    __slots__ = ("_half_open_s", "_learnt", "_since")

    def __init__(self, learnt: _Learnt, half_open_s: float, now: float) -> None:
        self._learnt = learnt
        self._half_open_s = half_open_s
        self._since = now

    def answered(self, now: float) -> None:
        self._learnt.add((now - self._since) * 1000, now)

    def progressed(self, tokens: int, now: float) -> None:
        pass

    def ended(self, signal: Signal, tokens: int, now: float) -> None:
        if signal is Signal.FAILURE:
            self._learnt.failures += 1
            self._learnt.retry_at = now + self._half_open_s
        elif signal is Signal.SUCCESS:
            self._learnt.failures = 0


class Adaptive(Policy):
    """`random` gives numbers in [0, 1)."""

    __slots__ = ("_learnt", "_options", "_random")

    term_names = ("score", "ttft_ms", "calls", "weight", "failures")

    def __init__(self, options: AdaptiveOptions, random: Callable[[], float]) -> None:
        self._options = options
        self._random = random
        self._learnt: dict[Worker, _Learnt] = {}

    def keep(self, workers: Sequence[Worker]) -> None:
        """A worker that moved to another address is a new one."""
        before, self._learnt = self._learnt, {}
        for worker in workers:
            learnt = before.get(worker)
            if learnt is None or learnt.url != worker.spec.url:
                learnt = _Learnt(worker.spec.url, self._options.window)
            self._learnt[worker] = learnt

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate with the highest score."""
        terms = [self._terms(worker, now) for worker in candidates]
        best = max(terms)[0]
        tied = [worker for worker, its in zip(candidates, terms, strict=True) if its[0] == best]
        if len(tied) == 1:
            return tied[0], terms
        if self._options.ties_by_recency:
            return min(tied, key=lambda worker: worker.turn), terms
        return tied[int(self._random() * len(tied))], terms

    def taken(self, worker: Worker, need: Need, now: float) -> _Attempt:
        """Follows the attempt; the next try of a worker without score is put off until this one may have told."""
        learnt, options = self._learnt[worker], self._options
        learnt.retry_at = now + options.half_open_s
        return _Attempt(learnt, options.half_open_s, now)

    def _terms(self, worker: Worker, now: float) -> Terms:
        learnt, options = self._learnt[worker], self._options
        calls = worker.load
        weight = worker.spec.weight if options.use_weights else 1
        ttft_ms = self._ttft_ms(learnt, now)
        if self._is_out(learnt, now):
            score = 0.0
        else:
            alpha = options.alpha
            score = weight / ((calls + 1) * (alpha * ttft_ms / options.base_ttft_ms + 1 - alpha))
        return (score, ttft_ms, calls, weight, learnt.failures)

    def _is_out(self, learnt: _Learnt, now: float) -> bool:
        options = self._options
        if not options.failure_streak or learnt.failures < options.failure_streak:
            return False
        return not options.half_open_s or now < learnt.retry_at

    def _ttft_ms(self, learnt: _Learnt, now: float) -> float:
        mean_ms, options = learnt.mean_ms, self._options
        if mean_ms is None:
            return max(options.floor_ms, options.initial_ms)
        age_s = now - learnt.sampled_at
        if options.max_age_s and age_s > options.max_age_s:
            left = max(0.0, 2 - age_s / options.max_age_s)
            mean_ms = options.initial_ms + left * (mean_ms - options.initial_ms)
        return max(options.floor_ms, mean_ms)
