"""`predict`: the worker where the call should end soonest, counting what it costs the calls already there.

    score = TTFT + w * L * TPOT(n + 1) + h * (n * d * L + n * b * u)         the lowest wins

    TTFT  time to first byte: a line a + b * (W + u) that is learnt, and how far off it the last ones were; not below
          the age of the oldest call that waits for its first byte (a stall shows at once); a penalty after a failure
    TPOT  time per output token with n streams: a line c + d * n that is learnt, and how far off it the last ones were
    W     prompt tokens sent to the worker whose first byte is outstanding, and u those of this call, without what the
          worker has in its prefix cache as far as was sent from here
    n     calls in flight at the worker
    L     output tokens to expect: the mean, or the most that the call allows
    w, h  options; the last part is what the streams there lose by one more stream and by the stop for its prompt

Nothing is configured per worker or asked of it: all is learnt from calls that pass. Processes of a host share W and n
and learn on their own; between hosts nothing is shared, and each learns how the workers answer to its own share.

A call that is not streamed shows one time only, that of its whole answer. Its prompt counts in W as long as the line
says that it is read, and the difference between its time and the lines goes to the larger of the two parts.

A full worker competes with the time until it should have a place: `would_wait`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.estimator import Estimate, Shape
from gateway.routing.options import option
from gateway.routing.policy import Policy, Terms
from gateway.routing.prefixes import PrefixIndex
from gateway.routing.ranking import lowest
from gateway.routing.requirement import Need
from gateway.routing.retry import Signal
from gateway.routing.worker import ALONE, Worker

_TTFT = Shape(0.020, 1 / 20_000, x_unit=500, y_unit_s=0.050, slack_s=0.050, weight_above=0.3)
_TPOT = Shape(0.012, 0.0002, x_unit=10, y_unit_s=0.020, slack_s=0.010, weight_above=0.5, slope_limit=1.0)
_LEAST_TTFT_S = 1e-4
_LEAST_TPOT_S = 1e-5
_LEAST_TOKENS = 16  # uncached, of any call: engines compute at least the last block
_OUTPUT_TOKENS = 200.0  # mean before any answer
_OUTPUT_SHARE = 0.01  # weight of an answer in that mean
_PENALTY_S = 0.5  # of the first failure
_SAMPLE_S = 0.25  # inter-token times are averaged over at least so long
_BYTES_A_TOKEN = 4  # of text about, of token ids exactly
_NOT_DRAWN = (0.0,) * 6


@dataclass(frozen=True, slots=True)
class PredictOptions:
    wait_weight: float = option(
        0.3, "How much the time for the output counts against the time to the first byte", minimum=0, maximum=10
    )
    harm: float = option(
        0.25, "How much the time counts that the other calls of a worker lose by this one", minimum=0, maximum=10
    )
    fade_s: float = option(
        10.0,
        "Time constant in which a disturbance is forgotten of which nothing more is heard",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    prefix_tokens: int = option(
        250_000, "Size of a worker's prefix cache, about; 0: it has none", unit="tokens", minimum=0, maximum=10_000_000
    )
    block_tokens: int = option(
        64, "Length of the pieces in which prompts are compared", unit="tokens", minimum=8, maximum=4096
    )
    random_half: bool = option(
        False, "Look at a random half of the workers only; for several gateway hosts on the same workers"
    )


class Predict(Policy):
    """`random` gives numbers in [0, 1)."""

    __slots__ = ("_index", "_learnt", "_options", "_output_tokens", "_random")

    term_names = ("score_s", "ttft_s", "tpot_s", "harm_s", "uncached_tokens", "streams")
    binds_late = True

    def __init__(self, options: PredictOptions, random: Callable[[], float]) -> None:
        self._options = options
        self._random = random
        self._output_tokens = _OUTPUT_TOKENS
        self._learnt: dict[Worker, _Learnt] = {}
        self._index: PrefixIndex[Worker] = PrefixIndex(
            options.block_tokens * _BYTES_A_TOKEN, options.prefix_tokens * _BYTES_A_TOKEN
        )

    def keep(self, workers: Sequence[Worker]) -> None:
        """A new worker starts as the median of the others; one that moved to another address is a new one."""
        before = self._learnt
        stayed = {each: before[each] for each in workers if each in before and before[each].url == each.spec.url}
        known = list(stayed.values())
        self._learnt = {each: stayed.get(each) or _Learnt(each, self._options.fade_s, known) for each in workers}
        self._index.keep(stayed)  # first, so that a worker that moved has nothing
        self._index.keep(workers)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """The candidate with the lowest score; the terms of those that were not drawn are 0."""
        if not self._options.random_half or len(candidates) < 3:
            terms = self._terms(candidates, need, now)
            return lowest(candidates, terms), terms
        places = sorted(range(len(candidates)), key=lambda _: self._random())
        drawn = places[: (len(places) + 1) // 2]
        among = [candidates[place] for place in drawn]
        theirs = self._terms(among, need, now)
        all_terms: list[Terms] = [_NOT_DRAWN] * len(candidates)
        for place, its in zip(drawn, theirs, strict=True):
            all_terms[place] = its
        return lowest(among, theirs), all_terms

    def would_wait(
        self, candidates: Sequence[Worker], full: Sequence[Worker], need: Need, now: float, rank: int
    ) -> bool:
        """Whether a full worker is best even with the time until the calls before this one and it have a place."""
        output = self._output(need)
        ready_s = min(its[0] for its in self._terms(candidates, need, now))
        worth: list[Worker] = []
        waits_s: list[float] = []
        for worker in full:
            streams = max(1, worker.load)
            wait_s = (rank + 1) * output * self._learnt[worker].tpot.line(streams) / streams
            if wait_s < ready_s:  # seldom far back in a queue, which is asked often
                worth.append(worker)
                waits_s.append(wait_s)
        scores = self._terms(worth, need, now) if worth else ()
        return any(its[0] + wait_s < ready_s for its, wait_s in zip(scores, waits_s, strict=True))

    def taken(self, worker: Worker, need: Need, now: float) -> _Attempt:
        """Counts the prompt as sent, and follows the attempt."""
        facts = need.facts
        had = self._index.sent(worker, self._index.chain(facts.prompt))
        uncached = _uncached(facts.input_tokens, had, len(facts.prompt))
        return _Attempt(self, self._learnt[worker], worker, uncached, need.requirement.is_streaming, now)

    def output_seen(self, tokens: int) -> None:
        """An answer of so many tokens is complete."""
        self._output_tokens += _OUTPUT_SHARE * (tokens - self._output_tokens)

    def _output(self, need: Need) -> float:
        most = need.facts.max_tokens
        return self._output_tokens if most is None else max(1.0, min(self._output_tokens, most))

    def _terms(self, workers: Sequence[Worker], need: Need, now: float) -> list[Terms]:
        facts, options = need.facts, self._options
        prompt, tokens, output = facts.prompt, facts.input_tokens, self._output(need)
        matches = self._index.matches(self._index.chain(prompt)) if prompt else {}
        length, whole = len(prompt), max(_LEAST_TOKENS, tokens)
        terms: list[Terms] = []
        for worker in workers:
            learnt, streams = self._learnt[worker], worker.load
            uncached = _uncached(tokens, matches[worker], length) if worker in matches else whole
            ttft_s = learnt.ttft_s(uncached, now)
            tpot = learnt.tpot
            tpot_s = max(_LEAST_TPOT_S, tpot.line(streams + 1) + tpot.off(now))
            harm_s = options.harm * streams * (tpot.slope_s * output + learnt.ttft.slope_s * uncached)
            score_s = ttft_s + options.wait_weight * output * tpot_s + harm_s
            terms.append((score_s, ttft_s, tpot_s, harm_s, uncached, streams))
        return terms


def _uncached(tokens: int, had_bytes: int, length: int) -> int:
    cached = tokens * had_bytes // length if had_bytes else 0
    return max(_LEAST_TOKENS, tokens - cached)


class _Learnt:
    """What is known of one worker, and of the calls of this process there. Calls go by a number."""

    __slots__ = (
        "_fade_s",
        "_number",
        "_penalty_at",
        "_penalty_s",
        "_reading",
        "_seen_at",
        "_since",
        "_stream_s",
        "_streams",
        "_tokens",
        "_unread",
        "_waiting",
        "_worker",
        "tpot",
        "ttft",
        "url",
    )

    def __init__(self, worker: Worker, fade_s: float, others: Sequence[_Learnt]) -> None:
        self.url = worker.spec.url
        self.ttft = Estimate(_TTFT, fade_s)
        self.tpot = Estimate(_TPOT, fade_s)
        self.ttft.start_like([other.ttft for other in others])
        self.tpot.start_like([other.tpot for other in others])
        self._worker = worker
        self._fade_s = fade_s
        self._penalty_s = self._penalty_at = 0.0
        self._number = 0
        self._unread = 0  # prompt tokens that the worker has not read yet
        self._waiting: dict[int, float] = {}  # streamed calls without first byte: when sent, the oldest first
        self._reading: dict[int, tuple[float, int]] = {}  # other calls: when the prompt should be read, its tokens
        self._streams = 0  # of which tokens are coming
        # the sample of the inter-token time that is being taken
        self._since = self._seen_at = 0.0
        self._stream_s = 0.0
        self._tokens = 0

    def tokens_ahead(self, now: float) -> int:
        """Prompt tokens that the worker has to read before those of a call that is sent now."""
        tokens = self._unread
        for read_at, its in self._reading.values():
            if read_at > now:
                break
            tokens -= its
        cell = self._worker.cell
        return tokens if cell is ALONE else tokens + cell.other_tokens()

    def ttft_s(self, uncached: int, now: float) -> float:
        """The time to first byte of a call that is sent now."""
        ttft = self.ttft
        expected_s = ttft.line(self.tokens_ahead(now) + uncached) + ttft.off(now)
        if self._waiting:
            stalled_s = now - next(iter(self._waiting.values())) + ttft.slope_s * uncached
            expected_s = max(expected_s, stalled_s)
        if self._penalty_s:
            expected_s += self._penalty(now)
        return max(_LEAST_TTFT_S, expected_s)

    def sent(self, uncached: int, ahead: int, is_streaming: bool, now: float) -> int:
        """A call was sent; returns its number."""
        for number, (read_at, its) in list(self._reading.items()):
            if read_at > now:
                break
            self.has_read(number, its)
        self._number += 1
        if is_streaming:
            self._waiting[self._number] = now
        else:
            self._reading[self._number] = (now + self.ttft.line(ahead), uncached)
        self._count(uncached)
        return self._number

    def has_read(self, number: int, uncached: int) -> None:
        """The call's prompt waits no more; may be said again."""
        if self._waiting.pop(number, None) is not None or self._reading.pop(number, None) is not None:
            self._count(-uncached)

    def _count(self, tokens: int) -> None:
        self._unread += tokens
        self._worker.cell.add(0, tokens)

    def failed(self, now: float) -> None:
        """A call failed."""
        self._penalty_s, self._penalty_at = max(_PENALTY_S, 2 * self._penalty(now)), now

    def worked(self) -> None:
        """A first byte has come."""
        self._penalty_s = 0.0

    def _penalty(self, now: float) -> float:
        return self._penalty_s * math.exp((self._penalty_at - now) / self._fade_s)

    def streamed(self, now: float, tokens: int, change: int = 0) -> None:
        """Tokens of a stream have come, or a stream began (`change` 1) or ended (-1).

        A sample ends with the last event before the one that finds it long enough: what comes in one burst is not cut.
        """
        length_s = self._seen_at - self._since
        if length_s >= _SAMPLE_S and now > self._seen_at:
            if self._tokens:
                others = max(0, self._worker.load - self._streams - len(self._waiting))
                self.tpot.learn(self._stream_s / length_s + others, self._stream_s / self._tokens, self._seen_at)
            self._since, self._stream_s, self._tokens = self._seen_at, 0.0, 0
        if self._streams:
            self._stream_s += self._streams * (now - self._seen_at)
        else:  # a pause, which says nothing
            self._since, self._stream_s, self._tokens = now, 0.0, 0
        self._seen_at = now
        self._tokens += tokens
        self._streams += change


class _Attempt:
    """The Track of one call."""

    __slots__ = (
        "_ahead",
        "_answered_s",
        "_is_streaming",
        "_learnt",
        "_load",
        "_number",
        "_policy",
        "_since",
        "_tokens",
        "_uncached",
        "_worker",
    )

    def __init__(
        self, policy: Predict, learnt: _Learnt, worker: Worker, uncached: int, is_streaming: bool, now: float
    ) -> None:
        self._policy = policy
        self._learnt = learnt
        self._worker = worker
        self._uncached = uncached
        self._is_streaming = is_streaming
        self._since = now
        self._load = worker.load
        self._ahead = learnt.tokens_ahead(now) + uncached  # this call's own included
        self._tokens: int | None = None  # of a stream that has begun
        self._answered_s: float | None = None
        self._number = learnt.sent(uncached, self._ahead, is_streaming, now)

    def answered(self, now: float) -> None:
        learnt = self._learnt
        learnt.has_read(self._number, self._uncached)
        learnt.worked()
        self._answered_s = now - self._since
        if self._is_streaming:
            learnt.ttft.learn(self._ahead, self._answered_s, now)

    def progressed(self, tokens: int, now: float) -> None:
        if self._tokens is None:
            self._learnt.streamed(now, 0, 1)  # the first tokens were not waited for one by one
        elif tokens > self._tokens:
            self._learnt.streamed(now, tokens - self._tokens)
        self._tokens = tokens

    def ended(self, signal: Signal, tokens: int, now: float) -> None:
        learnt = self._learnt
        learnt.has_read(self._number, self._uncached)
        if self._tokens is not None:
            learnt.streamed(now, 0, -1)
        if signal is Signal.FAILURE:
            learnt.failed(now)
        if self._answered_s is None:
            if signal is not Signal.SUCCESS and now - self._since > learnt.ttft.line(self._ahead):
                learnt.ttft.learn(self._ahead, now - self._since, now)  # at least so long it would have taken
        elif signal is Signal.SUCCESS:
            if tokens:
                self._policy.output_seen(tokens)
            if not self._is_streaming:
                self._learn_whole(self._answered_s, tokens, now)

    def _learn_whole(self, took_s: float, tokens: int, now: float) -> None:
        """What an answer that came in one piece says: the larger part by the lines gets the difference to them."""
        ttft, tpot = self._learnt.ttft, self._learnt.tpot
        steps, streams = max(0, tokens - 1), (self._load + self._worker.load) / 2
        first_s, rest_s = ttft.line(self._ahead), steps * tpot.line(streams)
        if rest_s > first_s:
            tpot.learn(streams, max(0.0, took_s - first_s) / steps, now)
        else:
            ttft.learn(self._ahead, max(0.0, took_s - rest_s), now)
