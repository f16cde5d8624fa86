"""The board in Redis on which workers/fleet writes what probes say, as a gateway process follows it.

    igw:health       hash: worker id -> {"state", "reason", "at", "latency_ms", "streak"}; and a channel for changes
    igw:probe:tick   Unix time at which the last round of probes ended
    igw:nudge        set: worker ids that a process wants probed at once
    igw:loads        hash: worker id -> a LoadReport; and a channel for new ones

A process follows the channel, reads the whole board every few seconds and after every lost connection, and looks at the
tick each second. Without a new tick for max(10 s, 3 x the shortest interval) nobody probes: health is unknown then, and
`last_tick_unix_s` says since when. The age of a tick is counted from when it changed here, as the hosts' clocks differ.
Loads come with each probe, so the hash is read only when the channel was joined; old reports in it are left alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from redis.asyncio.client import PubSub

from gateway.routing.health import UNSEEN, Health, HealthView
from gateway.routing.snapshot import WorkerId
from gateway.routing.worker import LoadReport
from gateway.runtime.shared import RETRY_S, Away, Shared

log = logging.getLogger(__name__)

BOARD = CHANNEL = "igw:health"
TICK = "igw:probe:tick"
NUDGES = "igw:nudge"
LOADS = "igw:loads"

POLL_S = 1.0
REREAD_S = 3.0  # a change that the channel lost is missing for so long at most
STALE_S = 10.0
NUDGE_S = 0.5  # the fleet looks as often


def encode(view: HealthView, streak: int = 0) -> dict[str, Any]:
    """A worker's entry, as it is written in JSON."""
    return {
        "state": view.state.value,
        "reason": view.reason,
        "at": view.at_unix_s,
        "latency_ms": view.latency_ms,
        "streak": streak,
    }


def decode(entry: Mapping[str, Any]) -> HealthView:
    """The view of an entry."""
    return HealthView(Health(entry["state"]), entry["reason"], entry["at"], entry["latency_ms"])


def encode_loads(reports: Mapping[WorkerId, LoadReport]) -> dict[str, str]:
    """The entries of some workers' reports."""
    return {worker: json.dumps(asdict(report)) for worker, report in reports.items()}


class HealthBoard:
    """Hands on what is new, by worker: `on_health` changed views, `on_loads` reports; `on_stale`: probes stopped."""

    def __init__(
        self,
        shared: Shared,
        on_health: Callable[[dict[WorkerId, HealthView]], None],
        on_loads: Callable[[dict[WorkerId, LoadReport]], None],
        on_stale: Callable[[], None],
        shortest_interval_s: Callable[[], float],
    ) -> None:
        self._shared = shared
        self._on_health = on_health
        self._on_loads = on_loads
        self._on_stale = on_stale
        self._shortest_interval_s = shortest_interval_s
        self._known: set[WorkerId] = set()
        self._tick: bytes | None = None
        self._ticked_s = 0.0
        self.is_fresh = False
        self.last_tick_unix_s: float | None = None  # None: none was ever seen

    async def run(self) -> None:
        """Follow the board until cancelled."""
        while True:
            if self._shared.is_up:
                try:
                    async with self._shared.subscribe(CHANNEL) as subscription:
                        await self._follow(subscription)
                except Away:
                    pass
                except Exception:  # a background loop: something unreadable on the board must not end it
                    log.exception("reading the health board failed")
            self._check_age()
            await asyncio.sleep(RETRY_S)

    async def _follow(self, subscription: PubSub) -> None:
        await subscription.subscribe(LOADS)
        poll_s = reread_s = 0.0
        is_new = True
        while True:
            now = time.monotonic()
            if now >= poll_s:
                if await self._look() or now >= reread_s:
                    await self._read()
                    reread_s = now + REREAD_S
                if is_new and self.is_fresh:
                    is_new = False
                    self._take_in_loads(await self._shared.ask("HGETALL", LOADS))
                poll_s = now + POLL_S
            message = await subscription.get_message(timeout=max(0.01, poll_s - now))
            if message is None or not self.is_fresh:
                continue
            entries = json.loads(message["data"])
            if message["channel"] == LOADS.encode():
                self._take_in_loads({worker.encode(): entry for worker, entry in entries.items()})
            else:
                self._take_in({WorkerId(worker): entry for worker, entry in entries.items()})

    async def _look(self) -> bool:
        """Look at the tick; whether probes began again."""
        was_fresh, tick = self.is_fresh, await self._shared.ask("GET", TICK)
        if tick is not None and tick != self._tick:
            # What was seen first may be old: then its own time tells.
            age_s = max(0.0, time.time() - float(tick)) if self._tick is None else 0.0
            self._tick, self.last_tick_unix_s = tick, float(tick)
            self._ticked_s = time.monotonic() - age_s
            self.is_fresh = self._age_s() <= self._patience_s()
        self._check_age()
        return self.is_fresh and not was_fresh

    async def _read(self) -> None:
        if not self.is_fresh:
            return
        fields = await self._shared.ask("HGETALL", BOARD)
        board = {WorkerId(worker.decode()): json.loads(entry) for worker, entry in fields.items()}
        if await self._shared.ask("GET", TICK) is None:
            return  # Redis lost its data: an empty board says nothing
        gone = {worker: encode(UNSEEN) for worker in self._known - board.keys()}
        self._known.clear()
        self._take_in({**gone, **board})
        self._known.difference_update(gone)

    def _take_in(self, entries: Mapping[WorkerId, Mapping[str, Any]]) -> None:
        views = {worker: decode(entry) for worker, entry in entries.items()}
        self._known.update(views)
        if views:
            self._on_health(views)

    def _take_in_loads(self, entries: Mapping[bytes, bytes | str]) -> None:
        reports = {WorkerId(worker.decode()): LoadReport(**json.loads(entry)) for worker, entry in entries.items()}
        oldest_unix_s = (self.last_tick_unix_s or 0.0) - self._patience_s()  # both by the clock of the fleet
        self._on_loads({worker: report for worker, report in reports.items() if report.at_unix_s >= oldest_unix_s})

    def _check_age(self) -> None:
        if self.is_fresh and self._age_s() > self._patience_s():
            self.is_fresh = False
            self._known.clear()
            self._on_stale()

    def _age_s(self) -> float:
        return time.monotonic() - self._ticked_s

    def _patience_s(self) -> float:
        return max(STALE_S, 3 * self._shortest_interval_s())


class RedisNudge:
    """Implements `pipeline.ports.ProbeNudge`: at most one nudge a worker and half second, none while Redis is away."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._pending: set[WorkerId] = set()
        self._asked = asyncio.Event()

    def nudge(self, worker: WorkerId) -> None:
        """Ask for a probe soon."""
        if self._shared.is_up:
            self._pending.add(worker)
            self._asked.set()

    async def run(self) -> None:
        """Pass nudges on until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            pending, self._pending = self._pending, set()
            try:
                await self._shared.ask("SADD", NUDGES, *pending)
            except Away:
                pass  # the regular probes find out
            await asyncio.sleep(NUDGE_S)
