"""Pools to test with."""

from __future__ import annotations

from typing import Any

from gateway.policies.round_robin import RoundRobin
from gateway.routing.breaker import Breaker
from gateway.routing.pool import Pool, Worker
from gateway.routing.requirement import Requirement
from gateway.routing.snapshot import PoolId, PoolSpec, WorkerId, WorkerSpec

NEED = Requirement("chat", "m", is_streaming=False)


def worker(name: str, **fields: Any) -> WorkerSpec:
    return WorkerSpec(WorkerId(name), name, f"http://{name}:1", **fields)


def pool_spec(*workers: WorkerSpec, id: int = 1, **fields: Any) -> PoolSpec:
    return PoolSpec(PoolId(id), f"m{id}", workers=workers, **fields)


def pool_of(*workers: WorkerSpec, **fields: Any) -> Pool:
    spec = pool_spec(*workers, **fields)
    return Pool(spec, [Worker(each, Breaker(spec.breaker)) for each in workers], RoundRobin())
