"""The live pools and workers of a process, carried over from snapshot to snapshot.

Live state goes by id: counts, breaker and health of a worker survive every edit of it, a pool's queue every edit of the
pool. What a snapshot no longer names lives on for the calls that still use it and dies with the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from gateway.routing.breaker import Breaker
from gateway.routing.health import UNSEEN, HealthView
from gateway.routing.pool import Policy, Pool, Worker
from gateway.routing.snapshot import PoolId, PoolSpec, Snapshot, WorkerId, WorkerSpec


class Table:
    """One for a process. `policies` makes a policy, by its name, from its options."""

    def __init__(self, policies: Mapping[str, Callable[[Any], Policy]]) -> None:
        self._policies = policies
        self._pools: dict[PoolId, Pool] = {}
        self._retired: WeakValueDictionary[PoolId, Pool] = WeakValueDictionary()
        self._workers: WeakValueDictionary[WorkerId, Worker] = WeakValueDictionary()
        self._views: dict[WorkerId, HealthView] = {}  # also of workers that the next snapshot brings

    def apply(self, snapshot: Snapshot) -> None:
        """Follow a new snapshot. Raises KeyError for an unknown policy and has changed nothing then."""
        specs = {spec.id: spec for spec in snapshot.pools.values()}
        policies = {spec.id: self._policy(spec) for spec in specs.values()}
        before, self._pools = self._pools, {}
        for pool_id in before.keys() - specs.keys():
            self._retired[pool_id] = before[pool_id]
        for spec in specs.values():
            pool = before.get(spec.id) or self._retired.pop(spec.id, None)
            workers = self._bring(spec)
            if pool is None:
                pool = Pool(spec, workers, policies[spec.id])
            else:
                pool.update(spec, workers, policies[spec.id])
            self._pools[spec.id] = pool
        named = {worker.id for spec in specs.values() for worker in spec.workers}
        gone = {worker.spec.id for pool in before.values() for worker in pool.workers} - named
        for worker_id in gone:
            self._views.pop(worker_id, None)

    def pool(self, spec: PoolSpec) -> Pool:
        """The live pool of a specification, also of one that a newer snapshot dropped."""
        pool = self._pools.get(spec.id) or self._retired.get(spec.id)
        if pool is None:
            pool = self._retired[spec.id] = Pool(spec, self._bring(spec), self._policy(spec))
        return pool

    def pools(self) -> Iterable[Pool]:
        """The pools of the current snapshot."""
        return self._pools.values()

    def workers(self) -> Iterable[Worker]:
        """The workers of the current snapshot."""
        return (worker for pool in self._pools.values() for worker in pool.workers)

    def set_health(self, views: Mapping[WorkerId, HealthView]) -> None:
        """Take in what probes said of some workers; the others stay as they are."""
        self._views.update(views)
        self._show_health()

    def forget_health(self) -> None:
        """Nobody probes any more: every worker is unknown."""
        self._views.clear()
        self._show_health()

    def _show_health(self) -> None:
        for pool in self._pools.values():
            for worker in pool.workers:
                worker.health = self._view(pool.spec, worker.spec)
            pool.wake()

    def _view(self, pool: PoolSpec, worker: WorkerSpec) -> HealthView:
        """The last word, unless it was said before probes were turned off: nobody would ever take it back."""
        is_probed = pool.health.enabled and worker.is_probed
        return self._views.get(worker.id, UNSEEN) if is_probed else UNSEEN

    def _bring(self, pool: PoolSpec) -> Sequence[Worker]:
        """The live workers of a pool, brought up to their specification."""
        workers = []
        for spec in pool.workers:
            worker = self._workers.get(spec.id)
            if worker is None:
                worker = self._workers[spec.id] = Worker(spec, Breaker(pool.breaker))
            elif worker.spec.url != spec.url:  # elsewhere now: failures there say nothing
                worker.breaker = Breaker(pool.breaker)
            worker.breaker.options = pool.breaker
            worker.spec = spec
            worker.health = self._view(pool, spec)
            workers.append(worker)
        return workers

    def _policy(self, spec: PoolSpec) -> Policy:
        """The pool's policy, kept with what it has learnt unless it was edited."""
        pool = self._pools.get(spec.id)
        if pool is not None and pool.spec.policy == spec.policy:
            return pool.policy
        return self._policies[spec.policy.name](spec.policy.options)
