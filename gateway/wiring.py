"""The composition root: the only module that names every concrete class of the data plane and puts them together."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from conversations.recorder import PostgresRecorder
from gateway.entry.auth import Authenticator
from gateway.entry.http import DataPlane, EntryOptions
from gateway.entry.sweeper import Patience, Sweeper
from gateway.pipeline.answer import Answering
from gateway.pipeline.client import Ended
from gateway.pipeline.exchange import Exchange, Outcome
from gateway.pipeline.explain import Explainer
from gateway.pipeline.http import HttpPipeline
from gateway.pipeline.inquiry import Inquirer
from gateway.pipeline.members import Members
from gateway.policies.registry import POLICIES
from gateway.protocol.ids import new_uuid7
from gateway.routing.admission import Envelope
from gateway.routing.breaker import BreakerState
from gateway.routing.health import Health, HealthView
from gateway.routing.rest import RestReason
from gateway.routing.snapshot import Snapshot, WorkerId
from gateway.routing.table import Table
from gateway.routing.worker import Worker
from gateway.runtime.board import Board
from gateway.runtime.drains import Drains
from gateway.runtime.health_board import HealthBoard, RedisNudge
from gateway.runtime.limits import RedisLimiter
from gateway.runtime.live import live
from gateway.runtime.rests import Rests
from gateway.runtime.shared import Shared
from gateway.runtime.stickies import Stickies
from gateway.runtime.watcher import Watcher
from gateway.services.registry import SERVICES
from gateway.telemetry.log import CallLog
from gateway.telemetry.metrics import Merge, Metrics
from gateway.upstream.egress import Egress
from gateway.upstream.wire import Origin, Wire
from gateway.vendors.registry import ADAPTERS

logger = logging.getLogger(__name__)


_FLUSH_S = 5.0  # what records get at the end of a process
_LOOK_S = 0.01  # between two looks after queues whose places other processes may free
_LOOK_ALONE_S = 0.1  # the same when only time can change something


class Plane(enum.Enum):
    """What a process serves."""

    BOTH = "both"
    DATA = "data"
    CONTROL = "control"


class Gateway:
    """One process's parts, started and stopped together. Also what /ready and /diagnostics report from."""

    def __init__(self, name: str, plane: Plane) -> None:
        self.plane = plane
        self.is_draining = False
        clock = time.monotonic
        bits = random.Random(secrets.randbits(256)).getrandbits  # for ids: unlike each other, not secret

        def new_id() -> str:
            return new_uuid7(time.time(), bits)

        policies = {name: entry.make for name, entry in POLICIES.items()}
        self._counts = Board(settings.STATE_DIR / "run" / "board") if plane is not Plane.CONTROL else None
        cells = {} if self._counts is None else {"cell": self._counts.cell}
        self.table = Table(policies, random.random, **cells)
        self.shared = Shared(settings.REDIS_URL)
        self.metrics = Metrics(name, settings.STATE_DIR / "metrics")
        self.call_log = CallLog()
        self.recorder = PostgresRecorder(settings.DATABASE_URL, limit_bytes=settings.RECORD_QUEUE_BYTES)
        self.watcher = Watcher(self._swap, settings.REDIS_URL)
        self.board = HealthBoard(
            self.shared,
            self._set_health,
            self.table.set_loads,
            self.table.forget_health,
            self._shortest_probe_interval_s,
        )
        self._rests = Rests(self.shared, self._set_rest)
        self._drains = Drains(self.shared, self.table.workers, self._running_revision)
        self._stickies = Stickies(self.shared, self.table.pools)
        self.limiter = RedisLimiter(self.shared)
        self._nudge = RedisNudge(self.shared)
        self.wire = Wire(egress=Egress())
        if unknown := settings.MAX_IN_FLIGHT_OF.keys() - SERVICES.keys():
            known = ", ".join(SERVICES)
            raise ImproperlyConfigured(f"IGW_MAX_IN_FLIGHT_OF: no service {', '.join(unknown)}; known: {known}")
        self.envelope = Envelope(settings.MAX_IN_FLIGHT, settings.BODY_BUDGET_BYTES, settings.MAX_IN_FLIGHT_OF)
        self._answering = Answering(
            self.wire, ADAPTERS, clock, time.time, settings.HISTORY_BODY_LIMIT_BYTES, settings.VIA
        )
        inquirer = Inquirer(new_id, clock, time.time, self._ended)
        self._members = Members(self.table, inquirer, random.random, clock, time.time)
        pipeline = HttpPipeline(
            self.table,
            self.limiter,
            self._nudge,
            self._rests,
            self._stickies,
            self._members,
            self._answering,
            clock,
            time.time,
        )
        self._explainer = Explainer(self.table, SERVICES, self._members, clock)
        self.clock = clock
        self.data_plane = DataPlane(
            SERVICES,
            Authenticator(settings.KEY_PEPPERS),
            self.envelope,
            pipeline,
            EntryOptions(settings.BODY_LIMIT_BYTES, settings.SHOW_WORKER, settings.VIA),
            new_id,
            clock,
            time.time,
            self._ended,
        )
        patience = Patience(settings.BODY_TIMEOUT_S, settings.CLIENT_IDLE_S, settings.KEEPALIVE_COMMENT_S)
        self._sweeper = Sweeper(self.data_plane.running, patience, clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._started_s = clock()
        self._register_gauges()

    # ---- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the configuration and start the background work."""
        await self.shared.start()
        live.open(self._explainer, lambda: self.snapshot)
        work: list[Coroutine[Any, Any, None]] = [self.board.run(), self.metrics.run(), self._rests.run()]
        if self.plane is not Plane.CONTROL:
            await self.limiter.start()
            work += [self._sweeper.run(), self._nudge.run(), self.recorder.run(), self.call_log.run()]
            work += [self._drains.run(), self._stickies.run(), self._look_after_queues()]
        if self._counts is not None:
            work.append(self._counts.run())
        await self.watcher.refresh()
        work.append(self.watcher.run())
        self._tasks = [asyncio.create_task(one) for one in work]
        for task in self._tasks:
            task.add_done_callback(_report)

    async def stop(self) -> None:
        """Flush what is owed, then end the background work."""
        live.close()
        if self.plane is not Plane.CONTROL:
            await self._drains.close()
            await self.recorder.close(_FLUSH_S)
            await self.call_log.close()
            await self.limiter.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.metrics.dump()
        self.metrics.close()
        await self.wire.close()
        await self.shared.close()
        if self._counts is not None:
            self._counts.close()

    def begin_drain(self) -> None:
        """Say no to load balancers from now on."""
        self.is_draining = True

    def running_calls(self) -> int:
        return len(self.data_plane.running)

    def end_calls(self) -> None:
        """End every running call with an honest error."""
        for client in list(self.data_plane.running):
            client.cancel(Ended.DRAIN)

    # ---- what happens ----------------------------------------------------------------------------------------------

    def _swap(self, snapshot: Snapshot) -> None:
        self.table.apply(snapshot)
        self._members.keep(snapshot.groups.values())
        self.data_plane.snapshot = snapshot
        workers = [worker for pool in snapshot.pools.values() for worker in pool.workers]
        self._answering.forget({worker.id for worker in workers})
        self.wire.forget({Origin.of(worker.url) for worker in workers})

    def _set_health(self, views: Mapping[WorkerId, HealthView]) -> None:
        self.table.set_health(views, self.clock())

    def _set_rest(self, worker: WorkerId, reason: RestReason, remaining_s: float) -> None:
        self.table.set_rest(worker, reason, remaining_s, self.clock())

    def _running_revision(self) -> int | None:
        status = self.watcher.status
        return None if status.last_error else status.revision

    async def _look_after_queues(self) -> None:
        counts = self._counts
        while True:
            await asyncio.sleep(_LOOK_ALONE_S if counts is None or counts.is_alone else _LOOK_S)
            self.table.wake_waiting(self.clock())

    def _ended(self, exchange: Exchange) -> None:
        """One call is over: tell the metrics, the log and the history."""
        outcome, usage = exchange.outcome.value, exchange.usage
        self.metrics.call_ended(
            service=exchange.service,
            pool=exchange.pool,
            outcome=outcome,
            status=exchange.status,
            duration_s=exchange.duration_s,
            ttft_s=exchange.ttft_s,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
        )
        if exchange.outcome is Outcome.REFUSED:
            self.metrics.refused(exchange.error_code)
        for _ in exchange.attempts[1:]:
            self.metrics.retried(exchange.pool)
        for attempt in exchange.attempts:
            seconds = (attempt.ended_s or exchange.duration_s) - attempt.started_s
            self.metrics.attempt_ended(exchange.pool, attempt.worker, attempt.outcome, seconds)
        self.call_log.append(_line(exchange))
        if exchange.key_id is not None:  # nobody's call has no place in a team's history
            self.recorder.offer(exchange)

    # ---- how it stands ---------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        return self.data_plane.snapshot

    def problems(self) -> list[str]:
        return [str(problem) for problem in self.watcher.status.last_error]

    def probes_since_unix_s(self) -> float | None:
        return self.board.last_tick_unix_s

    def has_fresh_probes(self) -> bool:
        return self.board.is_fresh

    def diagnostics(self) -> dict[str, Any]:
        return {
            "plane": self.plane.value,
            "uptime_s": round(self.clock() - self._started_s, 1),
            "calls_running": len(self.data_plane.running),
            "redis": "up" if self.shared.is_up else "down",
            "records": {
                "queued": self.recorder.queued,
                "dropped": self.recorder.dropped,
                "written": self.recorder.written,
            },
            "upstream_connections": {"open": self.wire.open_connections, "idle": self.wire.idle_connections},
            "processes": self.shared.processes,
        }

    def _shortest_probe_interval_s(self) -> float:
        pools = self.snapshot.pools.values() if self.snapshot is not None else ()
        return min((pool.health.interval_s for pool in pools if pool.health.enabled), default=0.0)

    def _register_gauges(self) -> None:
        gauge, counter, recorder = self.metrics.gauge, self.metrics.counter, self.recorder
        worker = ("pool", "worker")
        gauge("igw_calls_running", "Calls in flight.", lambda: {(): len(self.data_plane.running)})
        gauge("igw_request_bytes", "Request bodies held.", lambda: {(): self.envelope.bytes})
        gauge("igw_pool_in_flight", "Calls in flight of a pool.", lambda: self._of_pools("in_flight"), ("pool",))
        gauge("igw_pool_waiting", "Calls in a pool's queue.", lambda: self._of_pools("waiting"), ("pool",))
        gauge("igw_worker_in_flight", "Calls in flight at a worker.", lambda: self._of_workers(_in_flight), worker)
        gauge("igw_worker_healthy", "1 healthy, 0 not, -1 unknown.", self._healths, worker, merge=Merge.MAX)
        gauge("igw_worker_breaker_open", "Processes whose breaker is open.", self._breakers, worker)
        gauge("igw_worker_resting", "1 while a worker rests after a refusal.", self._resting, worker, merge=Merge.MAX)
        gauge("igw_records_queued", "Records waiting for Postgres.", lambda: {(): recorder.queued})
        gauge("igw_records_queued_bytes", "The same in bytes.", lambda: {(): recorder.queued_bytes})
        counter("igw_records_dropped", "Records lost.", lambda: {(): recorder.dropped})
        counter("igw_records_written", "Records in Postgres.", lambda: {(): recorder.written})
        counter("igw_call_lines_dropped", "Log lines of calls lost.", lambda: {(): self.call_log.dropped})
        gauge("igw_upstream_connections", "Connections to workers.", lambda: {(): self.wire.open_connections})
        gauge("igw_snapshot_revision", "Configuration in use.", self._revision, merge=Merge.EACH)
        gauge("igw_probe_age_seconds", "Time since workers were probed.", self._probe_age, merge=Merge.MAX)
        gauge("igw_redis_up", "1 when Redis answers.", lambda: {(): int(self.shared.is_up)}, merge=Merge.EACH)

    def _of_pools(self, attribute: str) -> dict[tuple[str, ...], float]:
        return {(pool.spec.model,): getattr(pool, attribute) for pool in self.table.pools()}

    def _of_workers(self, value: Callable[[Worker], float]) -> dict[tuple[str, ...], float]:
        pools = self.table.pools()
        return {(pool.spec.model, worker.spec.name): value(worker) for pool in pools for worker in pool.workers}

    def _healths(self) -> dict[tuple[str, ...], float]:
        return self._of_workers(lambda worker: _HEALTH_VALUE[worker.health.state])

    def _breakers(self) -> dict[tuple[str, ...], float]:
        now_s = self.clock()
        return self._of_workers(lambda worker: float(worker.breaker.state(now_s) is BreakerState.OPEN))

    def _resting(self) -> dict[tuple[str, ...], float]:
        now_s = self.clock()
        return self._of_workers(lambda worker: float(worker.rest.is_on(now_s)))

    def _revision(self) -> dict[tuple[str, ...], float]:
        return {} if self.snapshot is None else {(): self.snapshot.revision}

    def _probe_age(self) -> dict[tuple[str, ...], float]:
        since = self.board.last_tick_unix_s
        return {} if since is None else {(): time.time() - since}


_HEALTH_VALUE = {Health.HEALTHY: 1, Health.UNHEALTHY: 0, Health.UNKNOWN: -1}


def _in_flight(worker: Worker) -> float:
    return worker.in_flight


def _line(exchange: Exchange) -> dict[str, Any]:
    return {
        "request_id": exchange.request_id,
        "team": exchange.team,
        "key": exchange.key,
        "service": exchange.service,
        "model": exchange.pool,
        "worker": exchange.worker,
        "revision": exchange.revision,
        "outcome": exchange.outcome.value,
        "status": exchange.status,
        "error": exchange.error_code,
        "attempts": len(exchange.attempts),
        "queued_s": exchange.queued_s,
        "ttft_s": exchange.ttft_s,
        "duration_s": exchange.duration_s,
        "input_tokens": exchange.usage.input_tokens,
        "output_tokens": exchange.usage.output_tokens,
    }


def _report(task: asyncio.Task[None]) -> None:
    """Background work that ends by itself is a fault that a person should see."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("background work ended", exc_info=error)
