"""The fleet's probes: one tick asks all workers that are due, the board in Redis and the database learn what changed.

One worker process leads: it holds a lock with its own token for a few seconds and renews it with each tick. The others
return at once, and one of them goes on from the board when the leader falls silent. A tick

    1. renews the lead, and collects the nudges of the gateway processes
    2. looks for a new configuration, once a second; a configuration that cannot be used leaves the last good one
    3. starts the probes that are due or nudged, in an event loop that lives as long as the process
    4. waits a moment for them and takes in all that have ended; a slow one is taken in by a later tick
    5. begins to ask those that are well for their load, if their pool's policy looks at it, and takes in what they said
    6. writes the board, publishes the changes, and notes the time of the tick

Draining workers are probed, disabled ones are not, and what an operator set is never touched. What nobody probes is off
the board and unknown in the database, where only changes are written: filtered by the old state, so that one writer
wins, and compared once a second, so that a write that failed is made up for.
"""

from __future__ import annotations

import concurrent.futures
import json
import logging
import threading
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import redis
from celery import shared_task
from celery.signals import worker_shutdown
from django.conf import settings
from django.db import Error as DatabaseError
from django.utils import timezone
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.models import Worker
from gateway.routing.health import UNSEEN, Health, HealthCounter, HealthView
from gateway.routing.snapshot import PoolSpec, Snapshot, WorkerId, WorkerSpec, WorkerState
from gateway.routing.worker import LoadReport
from gateway.runtime.builder import ConfigError, build_newest
from gateway.runtime.health_board import BOARD, CHANNEL, LOADS, NUDGES, TICK, decode, encode, encode_loads
from gateway.runtime.rows import newest_revision
from gateway.upstream.probe import Finding, Probe
from workers.loads import READERS, LoadReader
from workers.prober import Prober

log = logging.getLogger(__name__)

LEAD_MS = 3000
READ_S = 1.0
WAIT_S = 0.4  # below the time between two ticks
EARLY_S = 0.25  # half of it: a probe due before the next tick but one is not put off to that one
REDIS_S = 0.5

# What it returns: whether we lead (2: as of now), and the nudges.
_LEAD = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0, {}} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local nudges = redis.call('SMEMBERS', KEYS[2])
redis.call('DEL', KEYS[2])
return {holder and 1 or 2, nudges}
"""
_RESIGN = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
_LOCK = "igw:probe:lead"


@shared_task(name="workers.fleet.tick", ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def tick() -> None:
    """One round of probes. May run as often as it likes, also at the same time."""
    fleet.tick()


@dataclass(slots=True)
class _Target:
    """A worker that is probed. `due_s` and `running` belong to its next probe, the rest to what the last ones said."""

    probe: Probe
    interval_s: float
    counter: HealthCounter
    view: HealthView = UNSEEN
    due_s: float = 0.0
    running: concurrent.futures.Future[Finding] | None = None
    loads: LoadReader | None = None  # None: nobody looks at its load
    reading: concurrent.futures.Future[LoadReport | None] | None = None

    def take_in(self, finding: Finding) -> None:
        """What a probe found."""
        self.counter.feed(finding.is_good)
        self.view = HealthView(self.counter.state, finding.reason, time.time(), finding.latency_ms)

    def recall(self, entry: dict[str, Any]) -> None:
        """Go on from an entry of the board."""
        self.view = decode(entry)
        self.counter.state, self.counter.streak = self.view.state, entry["streak"]


class Fleet:
    """One for a worker process. Only one tick runs at a time; another one meanwhile returns at once."""

    def __init__(self, redis_url: str) -> None:
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_connect_timeout=REDIS_S,
            socket_timeout=REDIS_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        self._token = uuid.uuid4().hex
        self._turn = threading.Lock()
        self._prober = Prober()
        self._targets: dict[WorkerId, _Target] = {}
        self._listed: dict[WorkerId, Health] = {}  # the states on the board
        self._board: dict[WorkerId, dict[str, Any]] = {}  # as it was when we began to lead
        self._revision: int | None = None  # of the targets; None: there was no usable configuration yet
        self._refused: int | None = None
        self._read_s = float("-inf")

    def tick(self) -> None:
        """One round of probes, if this process leads and no other round is running."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            nudged = self._lead()
            if nudged is not None:
                self._round(nudged)
        except redis.RedisError as error:
            log.warning("probes wait for redis", extra={"fields": {"error": type(error).__name__}})
        finally:
            self._turn.release()

    def close(self) -> None:
        """Let another process lead, and end what is under way."""
        try:
            self._redis.eval(_RESIGN, 1, _LOCK, self._token)
        except redis.RedisError:
            pass  # the lock ends by itself
        self._redis.close()
        self._prober.close()

    def _lead(self) -> set[str] | None:
        """The nudged workers; None when another process leads."""
        lead, nudged = self._redis.eval(_LEAD, 2, _LOCK, NUDGES, self._token, LEAD_MS)
        if lead == 2:  # others may have led meanwhile, or Redis lost its data: then ours is the only copy
            fields = self._redis.hgetall(BOARD)
            self._board = {WorkerId(str(worker)): json.loads(entry) for worker, entry in fields.items()}
            self._listed = {worker: decode(entry).state for worker, entry in self._board.items()}
            for worker in self._targets.keys() & self._board.keys():
                self._targets[worker].recall(self._board[worker])
            self._read_s = float("-inf")
        return set(nudged) if lead else None

    def _round(self, nudged: Collection[str]) -> None:
        now = time.monotonic()
        if now - self._read_s >= READ_S:
            self._read_s = now
            self._read_configuration()
            self._save()
        if self._revision is None:
            return
        for worker, target in self._targets.items():
            self._start(target, now, is_nudged=worker in nudged)
        running = [target.running for target in self._targets.values() if target.running is not None]
        concurrent.futures.wait(running, timeout=WAIT_S)
        probed, reports = self._take_in(), self._take_in_loads()
        if self._write(probed, reports):
            self._save()

    def _start(self, target: _Target, now: float, *, is_nudged: bool) -> None:
        if target.running is not None:
            if is_nudged:  # the probe under way may have begun before what went wrong
                target.due_s = now
        elif is_nudged or now + EARLY_S >= target.due_s:
            target.due_s = now + target.interval_s
            target.running = self._prober.start(target.probe)

    def _take_in(self) -> set[WorkerId]:
        """Which workers were probed."""
        probed = set()
        for worker, target in self._targets.items():
            if target.running is not None and target.running.done():
                finding, target.running = target.running.result(), None
                target.take_in(finding)
                probed.add(worker)
                if finding.is_good:
                    self._read_load(target)
        return probed

    def _read_load(self, target: _Target) -> None:
        if target.loads is not None and target.reading is None and target.loads.wants(time.monotonic()):
            target.reading = self._prober.read_load(target.loads, target.probe)

    def _take_in_loads(self) -> dict[WorkerId, LoadReport]:
        """What workers said since the last round."""
        reports = {}
        for worker, target in self._targets.items():
            if target.reading is not None and target.reading.done():
                report, target.reading = target.reading.result(), None
                if report is not None:
                    reports[worker] = report
        return reports

    def _write(self, probed: set[WorkerId], reports: dict[WorkerId, LoadReport]) -> bool:
        """Whether any state changed. The board first, the tick last: who sees the tick sees what it found."""
        gone = self._listed.keys() - self._targets.keys()
        news = {worker: encode(UNSEEN) for worker in gone}
        entries = {}
        for worker, target in self._targets.items():
            has_changed = self._listed.get(worker) is not target.view.state
            if has_changed or worker in probed:
                entries[worker] = encode(target.view, target.counter.streak)
            if has_changed:
                news[worker] = entries[worker]
                fields = {"worker": worker, "health": target.view.state.value, "reason": target.view.reason}
                log.info("worker health", extra={"fields": fields})
        with self._redis.pipeline(transaction=False) as pipe:
            if entries:
                pipe.hset(BOARD, mapping={worker: json.dumps(entry) for worker, entry in entries.items()})
            if gone:
                pipe.hdel(BOARD, *gone)
                pipe.hdel(LOADS, *gone)
            if reports:
                loads = encode_loads(reports)
                pipe.hset(LOADS, items=list(chain(*loads.items())))
                pipe.publish(LOADS, json.dumps(loads))
            if news:
                pipe.publish(CHANNEL, json.dumps(news))
            pipe.set(TICK, time.time())
            pipe.execute()
        self._listed = {worker: target.view.state for worker, target in self._targets.items()}
        return bool(news)

    def _read_configuration(self) -> None:
        try:
            revision = newest_revision()
            if revision != self._revision:
                snapshot = build_newest()
                self._aim(snapshot)
                self._revision = snapshot.revision
        except DatabaseError as error:
            log.warning("probes go on without the database", extra={"fields": {"error": type(error).__name__}})
        except ConfigError as error:
            if revision != self._refused:
                self._refused = revision
                log.error("probes go on with the last good configuration", extra={"fields": {"problems": str(error)}})

    def _aim(self, snapshot: Snapshot) -> None:
        targets = {}
        for pool in snapshot.pools.values():
            if pool.health.enabled:
                for spec in pool.workers:
                    if spec.is_probed and spec.state is not WorkerState.DISABLED:
                        targets[spec.id] = self._target(spec, pool)
        self._targets = targets
        self._board.clear()

    def _target(self, spec: WorkerSpec, pool: PoolSpec) -> _Target:
        """The target of a worker with what is known of it, unless that was said of another address."""
        health = pool.health
        probe = Probe(spec.url, health.path, health.timeout_s, spec.credential)
        counter = HealthCounter(health.failure_threshold, health.success_threshold)
        loads = LoadReader() if pool.policy.name in READERS else None
        target = _Target(probe, health.interval_s, counter, loads=loads)
        known = self._targets.get(spec.id)
        if known is not None:
            if known.probe.url == spec.url:
                target = replace(known, probe=probe, interval_s=health.interval_s, counter=counter)
                counter.state, counter.streak = known.counter.state, known.counter.streak
                target.due_s = min(known.due_s, time.monotonic() + health.interval_s)
                target.loads = loads and (known.loads or loads)
        elif spec.id in self._board:
            target.recall(self._board[spec.id])
        return target

    def _save(self) -> None:
        """Bring the database's health up to what the probes say."""
        if self._revision is None:
            return
        try:
            for pk, health in Worker.objects.order_by().values_list("pk", "health"):
                target = self._targets.get(WorkerId(f"w{pk}"))
                view = target.view if target else UNSEEN
                if view.state.value != health:
                    Worker.objects.filter(pk=pk, health=health).update(
                        health=view.state.value, health_reason=view.reason, health_at=timezone.now()
                    )
        except DatabaseError as error:
            log.warning(
                "a change of health is not in the database yet", extra={"fields": {"error": type(error).__name__}}
            )


fleet = Fleet(settings.REDIS_URL)


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _end(**_: object) -> None:
    fleet.close()
