"""What load balancers, Prometheus and operators ask: /live, /ready, /health, /metrics, /diagnostics.

    /live         200 while the process serves
    /ready        200 when every enabled pool has a worker that is healthy; the body names those that have not
    /health       200 when at least one pool can be served
    /metrics      Prometheus text format
    /diagnostics  JSON about this process: no secrets, no addresses, no names of models

Load plays no part in readiness. Without fresh probes (Celery or Redis away) workers count by their breakers only, and
the answers say since when there are none.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from gateway.entry.reply import Receive, Scope, Send, answer_id, caller
from gateway.pipeline.client import sent
from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.breaker import BreakerState
from gateway.routing.health import Health
from gateway.routing.snapshot import PoolSpec, Snapshot, WorkerState
from gateway.routing.table import Table


class Standing(Protocol):
    """How this process stands, as its parts tell it."""

    @property
    def snapshot(self) -> Snapshot | None: ...
    @property
    def is_draining(self) -> bool: ...
    def problems(self) -> list[str]:
        """What is wrong with the newest configuration; empty when it is in use."""

    def probes_since_unix_s(self) -> float | None:
        """When workers were last probed; None: never seen."""

    def has_fresh_probes(self) -> bool: ...
    def diagnostics(self) -> dict[str, Any]:
        """Figures of the process's parts for /diagnostics."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content_type: bytes
    body: bytes


class Operations:
    """The ASGI application for these paths."""

    def __init__(
        self,
        standing: Standing,
        table: Table,
        scrape: Callable[[], Awaitable[bytes]],
        clock: Callable[[], float],
    ) -> None:
        self._standing = standing
        self._table = table
        self._clock = clock
        self._scrape = scrape
        self._answers: dict[str, Callable[[], Awaitable[_Answer]]] = {
            "/live": self._live,
            "/ready": self._ready,
            "/health": self._health,
            "/metrics": self._metrics,
            "/diagnostics": self._diagnostics,
        }
        self.paths = frozenset(self._answers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = caller(scope, send, self._clock)
        if scope["method"] not in ("GET", "HEAD"):
            fault = Fault(FaultKind.METHOD_NOT_ALLOWED, "This path is asked with GET.")
            await client.fail(fault, [(b"allow", b"GET, HEAD"), answer_id(scope)])
            return
        answer = await self._answers[scope["path"]]()
        length = (b"content-length", b"%d" % len(answer.body))
        head = [(b"content-type", answer.content_type), length, (b"cache-control", b"no-store"), answer_id(scope)]
        await sent(client.start(answer.status, head))
        await sent(client.end(answer.body))

    async def _live(self) -> _Answer:
        return _Answer(200, b"text/plain; charset=utf-8", b"live\n")

    async def _metrics(self) -> _Answer:
        return _Answer(200, b"text/plain; version=0.0.4; charset=utf-8", await self._scrape())

    async def _ready(self) -> _Answer:
        snapshot = self._standing.snapshot
        lacking = {} if snapshot is None else self._lacking(snapshot)
        reasons = []
        if self._standing.is_draining:
            reasons.append("shutting down")
        if snapshot is None:
            reasons.append("no configuration loaded")
        if lacking:
            reasons.append("pools without a healthy worker")
        body = {
            "status": "not ready" if reasons else "ready",
            "reasons": reasons,
            "pools": lacking,
            "revision": snapshot.revision if snapshot is not None else None,
            "configuration_problems": self._standing.problems(),
            "probes": self._probes(),
        }
        return _json(503 if reasons else 200, body)

    async def _health(self) -> _Answer:
        snapshot = self._standing.snapshot
        is_routable = snapshot is not None and len(self._lacking(snapshot)) < max(1, len(snapshot.pools))
        return _json(200 if is_routable else 503, {"status": "ok" if is_routable else "no pool can be served"})

    async def _diagnostics(self) -> _Answer:
        snapshot = self._standing.snapshot
        body = {
            "process": os.getpid(),
            "revision": snapshot.revision if snapshot is not None else None,
            "pools": len(snapshot.pools) if snapshot is not None else 0,
            "pools_without_healthy_worker": len(self._lacking(snapshot)) if snapshot is not None else 0,
            "is_draining": self._standing.is_draining,
            "configuration_problems": len(self._standing.problems()),
            "probes": self._probes(),
            **self._standing.diagnostics(),
        }
        return _json(200, body)

    def _probes(self) -> dict[str, Any]:
        since = self._standing.probes_since_unix_s()
        if self._standing.has_fresh_probes():
            return {"status": "fresh", "last_unix_s": since}
        return {"status": "no probes since" if since is not None else "no probes yet", "last_unix_s": since}

    def _lacking(self, snapshot: Snapshot) -> dict[str, str]:
        """Pools without a healthy worker, with the reason."""
        return {pool.model: reason for pool in snapshot.pools.values() if (reason := self._why_lacking(pool))}

    def _why_lacking(self, spec: PoolSpec) -> str:
        now_s = self._clock()
        counts: dict[str, int] = {}
        workers = self._table.pool(spec).workers
        has_sole_worker = sum(worker.spec.state is WorkerState.ACTIVE for worker in workers) == 1  # used, open or not
        for worker in workers:
            if worker.spec.state is not WorkerState.ACTIVE:
                state = worker.spec.state.value
            elif not has_sole_worker and worker.breaker.state(now_s) is BreakerState.OPEN:
                state = "circuit open"
            else:
                health = worker.health.state
                is_judged = worker.spec.is_probed and self._standing.has_fresh_probes()
                if health is Health.HEALTHY or not is_judged:
                    return ""
                state = health.value
            counts[state] = counts.get(state, 0) + 1
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no workers"


def _json(status: int, body: dict[str, Any]) -> _Answer:
    return _Answer(status, b"application/json", msgspec.json.encode(body) + b"\n")
