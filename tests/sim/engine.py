"""A model of an inference engine: continuous batching as far as routing can feel it.

- Requests wait, first come first served, for a batch slot and for room in the KV memory (prompt and answer together).
- One prompt is prefilled at a time, without what the prefix cache has, the slower the more streams decode.
- All streams decode alike, a step takes d0 + d1 * n; at half the speed while a prefill runs.
- The prefix cache holds shared beginnings and conversations, bounded in tokens, the least recently used goes first.
- A fault makes it slower by a factor, or makes it refuse everything at once.

Decoding is told in steps done since the engine started (`steps`): a stream ends when it has got its number of them.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway.routing.worker import LoadReport
from tests.sim.clock import Clock
from tests.sim.workloads import Request

NETWORK_S = 0.004  # there and back, with parsing
_PREFILL_SHARE = 0.5  # of the decoding speed that a running prefill takes
_CROWDED = 0.3  # a prefill takes so much longer in a full batch
_LEAST_PREFILL = 16  # tokens
_ROUNDING = 1e-6  # steps


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine. `weight` is what an operator would give it."""

    name: str
    weight: int
    prefill_per_s: float  # tokens
    step_s: float  # of one stream
    step_per_stream_s: float
    slots: int
    kv_tokens: int
    cache_tokens: int


A100 = Kind("A100", 10, 17_000, 0.012, 0.000_15, 64, 160_000, 250_000)
RTX4090 = Kind("4090", 4, 6_800, 0.018, 0.000_35, 32, 60_000, 25_000)
L4 = Kind("L4", 2, 3_500, 0.030, 0.000_80, 24, 40_000, 15_000)
XEON = Kind("Xeon", 1, 1_760, 0.045, 0.004_0, 16, 60_000, 20_000)


class Job:
    """One request at an engine. `first` is called with its first token, `done` with its last one."""

    __slots__ = ("done", "first", "request", "started_at")

    def __init__(self, request: Request, first: Callable[[], None], done: Callable[[], None]) -> None:
        self.request = request
        self.first = first
        self.done = done
        self.started_at: float | None = None  # steps of the engine when it began to decode

    @property
    def size(self) -> int:
        return self.request.prompt + self.request.output


class Engine:
    """One engine. `is_failing` and `slow_down` are for faults to set."""

    def __init__(self, kind: Kind, clock: Clock) -> None:
        self.kind = kind
        self.is_failing = False
        self.cached = self.prompted = 0  # tokens found in the cache, of all prompt tokens
        self._clock = clock
        self._factor = 1.0
        self._waiting: deque[Job] = deque()  # for a slot
        self._admitted: deque[Job] = deque()  # for their prefill
        self._prefilling: Job | None = None
        self._decoding: list[tuple[float, int, Job]] = []  # heap by the step at which they end
        self._ended = 0  # number of the plan for the next end; older plans are void
        self._jobs = 0
        self._slots = kind.slots
        self._room = kind.kv_tokens
        self._cache = _Cache(kind.cache_tokens)
        self._steps = self._at = 0.0
        self._speed: float | None = None  # tokens per second, as it reports it

    def slow_down(self, factor: float) -> None:
        """Everything takes so many times as long from now on."""
        self._pass_time()
        self._factor = factor
        self._plan()

    def begin(self, job: Job) -> None:
        """A request arrives."""
        self._waiting.append(job)
        self._admit()

    def tokens(self, job: Job) -> int:
        """How many tokens of the answer there are."""
        if job.started_at is None:
            return 0
        self._pass_time()
        return min(job.request.output, 1 + int(self._steps - job.started_at + _ROUNDING))

    def report(self) -> LoadReport:
        """What it says of its load when it is asked."""
        streams = len(self._decoding)
        if streams:
            now = streams * self._rate()
            self._speed = 0.7 * (2000.0 if self._speed is None else self._speed) + 0.3 * now
        queued = sum(job.request.prompt for jobs in (self._waiting, self._admitted) for job in jobs)
        use = 1 - self._room / self.kind.kv_tokens
        return LoadReport(self._clock.now, streams, len(self._waiting), queued, self._speed, use)

    def _rate(self) -> float:
        """Steps per second."""
        step_s = (self.kind.step_s + self.kind.step_per_stream_s * len(self._decoding)) * self._factor
        return (1 - _PREFILL_SHARE if self._prefilling else 1.0) / step_s if self._decoding else 0.0

    def _pass_time(self) -> None:
        now = self._clock.now
        if now > self._at:
            self._steps += self._rate() * (now - self._at)
            self._at = now

    def _plan(self) -> None:
        self._ended += 1
        if self._decoding:
            left = max(0.0, self._decoding[0][0] - self._steps)
            self._clock.after(left / self._rate(), self._end_streams, self._ended)

    def _admit(self) -> None:
        while self._waiting and self._slots and self._waiting[0].size <= self._room:
            job = self._waiting.popleft()
            self._slots -= 1
            self._room -= job.size
            self._admitted.append(job)
        if self._prefilling is None and self._admitted:
            self._pass_time()
            self._prefill(self._admitted.popleft())
            self._plan()

    def _prefill(self, job: Job) -> None:
        self._prefilling = job
        kind, prompt = self.kind, job.request.prompt
        cached = min(prompt, self._cache.found(job.request))
        self.cached += cached
        self.prompted += prompt
        crowd = 1 + _CROWDED * len(self._decoding) / kind.slots
        takes_s = max(_LEAST_PREFILL, prompt - cached) / kind.prefill_per_s * crowd + kind.step_s
        self._clock.after(takes_s * self._factor, self._end_prefill, job)

    def _end_prefill(self, job: Job) -> None:
        self._pass_time()
        self._prefilling = None
        self._cache.add(job.request)
        job.started_at = self._steps
        self._jobs += 1
        heapq.heappush(self._decoding, (self._steps + job.request.output - 1, self._jobs, job))
        self._plan()
        self._admit()
        self._clock.after(NETWORK_S / 2, job.first)

    def _end_streams(self, plan: int) -> None:
        if plan != self._ended:
            return
        self._pass_time()
        while self._decoding and self._decoding[0][0] <= self._steps + _ROUNDING:
            job = heapq.heappop(self._decoding)[2]
            self._slots += 1
            self._room += job.size
            self._clock.after(NETWORK_S / 2, job.done)
        self._plan()
        self._admit()


class _Cache:
    """Shared beginnings and conversations with their lengths, bounded in tokens."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lengths: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._used = 0

    def found(self, request: Request) -> int:
        """How many tokens of the prompt are there; they count as used."""
        length = 0
        if request.group is not None:
            length = max(self._touch(("group", request.group)), length)
        if request.conversation is not None:
            there = self._touch(("conversation", request.conversation))
            length = max(min(there, request.shared + request.history), length)
        return length

    def add(self, request: Request) -> None:
        """The prompt was computed, and the answer will be."""
        if request.group is not None:
            self._put(("group", request.group), request.shared)
        if request.conversation is not None:
            self._put(("conversation", request.conversation), request.prompt + request.output)

    def _touch(self, key: tuple[str, int]) -> int:
        if key not in self._lengths:
            return 0
        self._lengths.move_to_end(key)
        return self._lengths[key]

    def _put(self, key: tuple[str, int], length: int) -> None:
        self._used += length - self._lengths.pop(key, 0)
        self._lengths[key] = length
        while self._used > self._limit and len(self._lengths) > 1:
            self._used -= self._lengths.popitem(last=False)[1]
