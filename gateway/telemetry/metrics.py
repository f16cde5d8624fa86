"""Metrics of this process, counted by hand because counting is on every call's path, and their rendering.

Labels are the names that the configuration gives: service, pool, worker, outcome, class of status; unknown is "".
Live numbers (in flight, queues, health) are not kept here but read from registered sources when somebody asks.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import resource
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.telemetry.dumps import DumpDirectory
from gateway.telemetry.families import BOUNDS_S, Family, Kind, Labels, Samples, State, merge, render

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Source = Callable[[], Mapping[Labels, float]]  # current values by label values; {(): value} without labels
_log = logging.getLogger(__name__)
_TICK_S = 0.25
_TICKS_KEPT = 60  # the worst lag of 15 s, the usual time between two scrapes


class Merge(enum.Enum):
    """What a gauge of several processes shows: their sum, the greatest, or each under its `process` label."""

    SUM = "sum"
    MAX = "max"
    EACH = "each"


class _Calls:
    """What calls of one service, pool, outcome and class of status add up to."""

    __slots__ = ("cached_tokens", "duration", "input_tokens", "output_tokens", "ttft")

    def __init__(self) -> None:
        self.duration = _empty()
        self.ttft = _empty()
        self.input_tokens = self.output_tokens = self.cached_tokens = 0


class Metrics:
    """All metrics of one process. Methods belong to its event loop.

    With a directory, processes that share it are scraped as one: each dumps its state there while `run` runs. `process`
    is this one's name, which may be that of a dead process but of no living one.
    """

    def __init__(self, process: str, directory: Path | None = None) -> None:
        self._process = process
        self._run_id = f"{os.getpid()}-{time.time_ns()}"
        self._dumps = DumpDirectory(directory, process) if directory else None
        self._is_dump_failing = False
        self._calls: dict[tuple[str, str, str, int], _Calls] = {}
        self._attempts: dict[tuple[str, str, str], list[float]] = {}
        self._retries: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._sources: dict[str, tuple[Kind, str, Labels, Labels, Source]] = {}
        self._broken_sources: set[str] = set()
        self._lags: deque[float] = deque([0.0], maxlen=_TICKS_KEPT)
        self.gauge("igw_process_resident_bytes", "Memory of the process.", _resident_bytes, merge=Merge.EACH)
        self.gauge("igw_event_loop_lag_seconds", "Worst delay of the loop in 15 s.", self._worst_lag, merge=Merge.EACH)

    def call_ended(
        self,
        *,
        service: str,
        pool: str,
        outcome: str,
        status: int,
        duration_s: float,
        ttft_s: float | None,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int,
    ) -> None:
        """Count a finished call. `status` 0: none was sent."""
        key = (service, pool, outcome, status // 100)
        calls = self._calls.get(key)
        if calls is None:
            calls = self._calls[key] = _Calls()
        duration = calls.duration
        duration[bisect_left(BOUNDS_S, duration_s)] += 1
        duration[-1] += duration_s
        if ttft_s is not None:
            ttft = calls.ttft
            ttft[bisect_left(BOUNDS_S, ttft_s)] += 1
            ttft[-1] += ttft_s
        calls.input_tokens += input_tokens
        calls.output_tokens += output_tokens
        calls.cached_tokens += cached_tokens

    def attempt_ended(self, pool: str, worker: str, outcome: str, seconds: float) -> None:
        """Count one try at a worker; `outcome` is `ok`, a fault's code or the like."""
        key = (pool, worker, outcome)
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = _empty()
        attempt[bisect_left(BOUNDS_S, seconds)] += 1
        attempt[-1] += seconds

    def retried(self, pool: str) -> None:
        """Count an attempt that follows another one of the same call."""
        self._retries[pool] = self._retries.get(pool, 0) + 1

    def refused(self, reason: str) -> None:
        """Count a request that we refused; `reason` is a fault's code."""
        self._refusals[reason] = self._refusals.get(reason, 0) + 1

    def gauge(self, name: str, help: str, source: Source, labels: Labels = (), merge: Merge = Merge.SUM) -> None:
        """Show what `source` returns at each scrape. It must be quick; what it no longer returns is no longer shown."""
        kind = Kind.GAUGE_MAX if merge is Merge.MAX else Kind.GAUGE_SUM
        names, values = (("process",), (self._process,)) if merge is Merge.EACH else ((), ())
        self._sources[name] = kind, help, (*labels, *names), values, source

    def counter(self, name: str, help: str, source: Source, labels: Labels = ()) -> None:
        """Show a number that somebody else counts up, from 0 at the start of the process. No `_total` in the name."""
        self._sources[name] = Kind.COUNTER, help, labels, (), source

    def render(self) -> bytes:
        """The metrics of all processes in Prometheus's text format. Reads files; may take tens of milliseconds."""
        return self._render(self._state())

    async def scrape(self) -> bytes:
        """As `render`, but files and formatting have a thread."""
        return await asyncio.to_thread(self._render, self._state())

    async def run(self) -> None:
        """Measure the loop's lag and dump the state every second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(round(1 / _TICK_S)):
                due_s = loop.time() + _TICK_S
                await asyncio.sleep(_TICK_S)
                self._lags.append(max(0.0, loop.time() - due_s))
            await self.dump()

    async def dump(self) -> None:
        """Write the state for the other processes to read. Once more at the end of a process, before `close`."""
        if self._dumps is None:
            return
        try:
            await asyncio.to_thread(self._dumps.write, self._state())
            self._is_dump_failing = False
        except OSError as error:  # the disk, or a predecessor of the same name that still runs
            if not self._is_dump_failing:
                self._is_dump_failing = True
                _log.error("metrics cannot be dumped", extra={"fields": {"error": str(error)}})

    def close(self) -> None:
        """Leave the directory; from now on this process counts as ended."""
        if self._dumps:
            self._dumps.close()

    def _render(self, state: State) -> bytes:
        return render(merge([state, *(self._dumps.others() if self._dumps else ())]))

    def _state(self) -> State:
        families = {**_call_families(self._calls), **_attempt_families(self._attempts)}
        retries: Samples = {(pool,): [count] for pool, count in self._retries.items()}
        families["igw_retries"] = Family(Kind.COUNTER, "Attempts after the first one of a call.", ("pool",), retries)
        refusals: Samples = {(reason,): [count] for reason, count in self._refusals.items()}
        families["igw_refusals"] = Family(Kind.COUNTER, "Requests refused by the gateway.", ("reason",), refusals)
        for name, (kind, help, labels, suffix, source) in self._sources.items():
            families[name] = Family(kind, help, labels, self._ask(name, suffix, source))
        return State(self._run_id, families)

    def _ask(self, name: str, suffix: Labels, source: Source) -> Samples:
        try:
            values = source()
            self._broken_sources.discard(name)
        except Exception:  # a plugin call: one number that cannot be had must not hide the others
            if name not in self._broken_sources:
                self._broken_sources.add(name)
                _log.exception("metric has no value", extra={"fields": {"metric": name}})
            return {}
        return {(*key, *suffix): [value] for key, value in values.items()}

    def _worst_lag(self) -> Mapping[Labels, float]:
        return {(): max(self._lags)}


def _empty() -> list[float]:
    return [0] * (len(BOUNDS_S) + 2)  # the open bucket and the sum


def _call_families(all_calls: Mapping[tuple[str, str, str, int], _Calls]) -> dict[str, Family]:
    ended: Samples = {}
    durations: Samples = {}
    first_bytes: Samples = {}
    tokens: Samples = {}
    for (service, pool, outcome, status_class), calls in all_calls.items():
        status = f"{status_class}xx" if status_class else ""
        ended[service, pool, outcome, status] = [sum(calls.duration[:-1])]
        _accumulate(durations, (service, pool, outcome), calls.duration)
        if any(calls.ttft):
            _accumulate(first_bytes, (service, pool), calls.ttft)
        for kind in ("input", "output", "cached"):
            _accumulate(tokens, (service, pool, kind), [getattr(calls, f"{kind}_tokens")])
    where = ("service", "pool")
    return {
        "igw_calls": Family(Kind.COUNTER, "Finished calls.", (*where, "outcome", "status"), ended),
        "igw_call_duration_seconds": Family(
            Kind.HISTOGRAM, "Arrival to the end of the answer.", (*where, "outcome"), durations
        ),
        "igw_time_to_first_byte_seconds": Family(
            Kind.HISTOGRAM, "Arrival to the first byte of the answer.", where, first_bytes
        ),
        "igw_tokens": Family(Kind.COUNTER, "Tokens; cached ones are part of input.", (*where, "kind"), tokens),
    }


def _attempt_families(attempts: Mapping[tuple[str, str, str], list[float]]) -> dict[str, Family]:
    durations: Samples = {}
    for (pool, worker, _), values in attempts.items():
        _accumulate(durations, (pool, worker), values)
    ended: Samples = {key: [sum(values[:-1])] for key, values in attempts.items()}
    return {
        "igw_attempts": Family(Kind.COUNTER, "Tries at workers.", ("pool", "worker", "outcome"), ended),
        "igw_attempt_duration_seconds": Family(
            Kind.HISTOGRAM, "Start to end of a try at a worker.", ("pool", "worker"), durations
        ),
    }


def _accumulate(samples: Samples, labels: Labels, values: list[float]) -> None:
    known = samples.get(labels)
    samples[labels] = [a + b for a, b in zip(known, values, strict=True)] if known else list(values)


def _resident_bytes() -> Mapping[Labels, float]:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {(): pages * os.sysconf("SC_PAGE_SIZE")}
    except OSError:  # no /proc: the peak, in bytes on macOS and KiB elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {(): peak if sys.platform == "darwin" else peak * 1024}
