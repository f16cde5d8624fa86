"""`least_load`: the worker that would begin soonest, by what it says of its own queue and what was sent to it since.

    wait = (queued tokens + tokens sent since the report) / throughput + w * k / (1 - k)      k: KV memory in use

A worker without a report is judged by its calls in flight, a mean prompt each, at the mean throughput of those that
have one. Where nobody has, that is the shortest queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.ranking import lowest
from gateway.routing.reports import Reports
from gateway.routing.requirement import Need
from gateway.routing.worker import LoadReport, Worker

_FULLEST = 0.999  # KV memory beyond this makes no difference; at 1 the wait would have no end


@dataclass(frozen=True, slots=True)
class LeastLoadOptions:
    cache_weight_s: float = option(
        0.15, "Wait that a worker's half full KV memory counts for", unit="s", minimum=0, maximum=60
    )
    default_tokens_per_s: float = option(
        2000.0, "Speed of a worker that does not tell its own", unit="tokens/s", minimum=1, maximum=10_000_000
    )
    mean_prefill_tokens: int = option(
        1024, "Length of a prompt that is not known", unit="tokens", minimum=1, maximum=1_000_000
    )
    max_waiting_requests: int = option(
        0,
        "A worker with so many calls in its own queue gets none while another has fewer; 0: no limit",
        unit="calls",
        minimum=0,
        maximum=100_000,
    )
    stale_s: float = option(
        30.0, "Age from which a worker's own word on its load counts no more", unit="s", minimum=1, maximum=3600
    )


class LeastLoad(Policy):
    __slots__ = ("_options", "_reports", "_sent")

    term_names = ("wait_s", "queued_tokens", "sent_tokens", "tokens_per_s", "cache_use")

    def __init__(self, options: LeastLoadOptions) -> None:
        self._options = options
        self._reports = Reports(options.stale_s)
        self._sent: dict[Worker, tuple[LoadReport | None, int]] = {}  # tokens since that report

    def keep(self, workers: Sequence[Worker]) -> None:
        self._reports.keep(workers)
        self._sent = {worker: self._sent.get(worker, (None, 0)) for worker in workers}

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate with the shortest expected wait."""
        options = self._options
        reports = [self._reports.current(worker, now) for worker in candidates]
        speeds = [self._speed(report) for report in reports if report is not None]
        mean_speed = sum(speeds) / len(speeds) if speeds else options.default_tokens_per_s
        terms = [
            self._unreported(worker, mean_speed) if report is None else self._reported(worker, report)
            for worker, report in zip(candidates, reports, strict=True)
        ]
        limit = options.max_waiting_requests
        if limit and speeds:
            open_at = [at for at, report in enumerate(reports) if report is None or (report.waiting or 0) < limit]
            if open_at:
                return lowest([candidates[at] for at in open_at], [terms[at] for at in open_at]), terms
        return lowest(candidates, terms), terms

    def taken(self, worker: Worker, need: Need, now: float) -> None:
        """Counts the prompt as sent."""
        self._reports.notice(now)
        facts = need.facts
        tokens = facts.input_tokens if facts.prompt else self._options.mean_prefill_tokens
        self._sent[worker] = (worker.report, self._sent_to(worker) + tokens)

    def _sent_to(self, worker: Worker) -> int:
        report, tokens = self._sent[worker]
        return tokens if report is worker.report else 0

    def _unreported(self, worker: Worker, speed: float) -> Terms:
        tokens = worker.load * self._options.mean_prefill_tokens
        return (tokens / speed, 0, tokens, speed, 0.0)

    def _speed(self, report: LoadReport) -> float:
        return report.tokens_per_s or self._options.default_tokens_per_s  # 0 is idle, not slow

    def _reported(self, worker: Worker, report: LoadReport) -> Terms:
        options = self._options
        queued, sent = report.queued_tokens, self._sent_to(worker)
        if queued is None:
            queued = (report.waiting or 0) * options.mean_prefill_tokens
        speed = self._speed(report)
        use = min(report.cache_use or 0.0, _FULLEST)
        wait_s = (queued + sent) / speed + options.cache_weight_s * use / (1 - use)
        return (wait_s, queued, sent, speed, use)
