"""`cache_aware`: the worker that was sent the longest beginning of the prompt, unless the load is out of balance.

    1. the loads are out of balance       the least loaded
    2. enough of the prompt is known      of those near the lowest load the one that has the most of it
    3. otherwise                          the least loaded

Load is calls in flight. It is out of balance when the highest is above the lowest by more than both thresholds, or when
the workers' KV memory is (off by default): then those whose memory is too full are left out while there are others.
Beginnings are compared as text, or as token ids where the client sends them; each has a tree of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.radix import RadixTree
from gateway.routing.ranking import lowest
from gateway.routing.reports import Reports
from gateway.routing.requirement import Need
from gateway.routing.snapshot import WorkerId
from gateway.routing.worker import Worker

# Of a longer prompt this much is looked at: reading it takes some 10 us. Where 32,000 tokens agree, so does the worker.
_LONGEST = 131_072
_UNITS = (1, 4)  # bytes of text, of a token id


@dataclass(frozen=True, slots=True)
class CacheAwareOptions:
    cache_threshold: float = option(
        0.5, "A worker is preferred when it was sent more than this share of the prompt before", minimum=0, maximum=1
    )
    balance_abs_threshold: int = option(
        32,
        "Loads are out of balance when the highest is above the lowest by more than this",
        unit="calls",
        minimum=0,
        maximum=100_000,
    )
    balance_rel_threshold: float = option(
        1.1, "and by more than this factor; then the least loaded is chosen", minimum=1, maximum=1000
    )
    load_window: int = option(
        16,
        "A worker is preferred only while it has at most so many more than the least loaded",
        unit="calls",
        minimum=0,
        maximum=100_000,
    )
    max_tree_size: int = option(
        4_194_304,
        "Memory for what each worker was sent, for text and for token ids each; about as many characters as its own"
        " cache holds is best",
        unit="bytes",
        minimum=262_144,
        maximum=1_073_741_824,
    )
    overload_token_usage_threshold: float = option(
        1.0,
        "A worker that says more than this share of its KV memory is in use is avoided; 1: off",
        minimum=0,
        maximum=1,
    )
    balance_token_usage_threshold: float = option(
        1.0, "and one whose share is above the lowest by more than this; 1: off", minimum=0, maximum=1
    )
    stale_s: float = option(
        30.0, "Age from which a worker's own word on its memory counts no more", unit="s", minimum=1, maximum=3600
    )


class CacheAware(Policy):
    __slots__ = ("_options", "_reads_reports", "_reports", "_trees", "_urls")

    term_names = ("calls", "matched_share")

    def __init__(self, options: CacheAwareOptions) -> None:
        self._options = options
        self._reads_reports = min(options.overload_token_usage_threshold, options.balance_token_usage_threshold) < 1
        self._reports = Reports(options.stale_s)
        self._trees = {unit: RadixTree[WorkerId](unit, options.max_tree_size) for unit in _UNITS}
        self._urls: dict[WorkerId, str] = {}

    def keep(self, workers: Sequence[Worker]) -> None:
        """A worker that moved to another address has nothing yet."""
        before, self._urls = self._urls, {worker.spec.id: worker.spec.url for worker in workers}
        for worker_id, url in before.items():
            if self._urls.get(worker_id) != url:
                for tree in self._trees.values():
                    tree.remove(worker_id)
        self._reports.keep(workers)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate with the longest beginning of the prompt near the lowest load, or the least loaded."""
        facts = need.facts
        prompt = facts.prompt[:_LONGEST]
        matches = self._trees[facts.unit].match(prompt)
        length = len(prompt) or 1
        terms = [(worker.load, matches.get(worker.spec.id, 0) / length) for worker in candidates]
        relieving = self._relieving(candidates, now) if self._reads_reports else None
        if relieving:
            return lowest([candidates[at] for at in relieving], [terms[at] for at in relieving]), terms
        return self._preferred(candidates, terms) or lowest(candidates, terms), terms

    def taken(self, worker: Worker, need: Need, now: float) -> None:
        """The worker has the prompt from now on."""
        facts = need.facts
        if facts.prompt:
            self._trees[facts.unit].insert(facts.prompt[:_LONGEST], worker.spec.id)
        if self._reads_reports:
            self._reports.notice(now)

    def _preferred(self, candidates: Sequence[Worker], terms: Sequence[tuple[int, float]]) -> Worker | None:
        """Who has the longest beginning, if that is long enough and the loads are in balance."""
        options = self._options
        least, most = min(terms)[0], max(terms)[0]
        if most - least > options.balance_abs_threshold and most > options.balance_rel_threshold * least:
            return None
        highest, best, longest, lightest = least + options.load_window, None, options.cache_threshold, 0
        for worker, (load, share) in zip(candidates, terms, strict=True):
            if load > highest or share < longest or (best is None and share == longest):
                continue
            if best is None or share > longest or (load, worker.turn) < (lightest, best.turn):
                best, longest, lightest = worker, share, load
        return best

    def _relieving(self, candidates: Sequence[Worker], now: float) -> list[int] | None:
        """The places of those with KV memory to spare, or silent about it, when others have too little."""
        options, reports = self._options, self._reports
        uses = [None if (report := reports.current(worker, now)) is None else report.cache_use for worker in candidates]
        known = [use for use in uses if use is not None]
        if not known:
            return None
        limit = min(options.overload_token_usage_threshold, min(known) + options.balance_token_usage_threshold)
        if max(known) <= limit:
            return None
        return [at for at, use in enumerate(uses) if use is None or use <= limit]
