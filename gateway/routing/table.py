"""The live pools and workers of a process, carried over from snapshot to snapshot.

Live state goes by id: counts, breaker and health of a worker survive every edit of it, a pool's queue every edit of the
pool. What a snapshot no longer names lives on for the calls that still use it and dies with the last of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from gateway.routing.breaker import Breaker
from gateway.routing.health import UNSEEN, Health, HealthView
from gateway.routing.policy import Policy
from gateway.routing.pool import Pool
from gateway.routing.rest import RestReason
from gateway.routing.snapshot import PoolId, PoolSpec, Snapshot, WorkerId, WorkerSpec
from gateway.routing.worker import ALONE, Cell, LoadReport, Worker

_ACCOUNT_MODELS = 1024  # whose breakers and rests are remembered between calls


def _alone(name: str) -> Cell:
    return ALONE


class Table:
    """One for a process.

    `policies` makes a policy, by its name, from its options; `random` gives numbers in [0, 1); `cell` gives the counts
    that the host's processes share, by the name of a worker or pool.
    """

    def __init__(
        self,
        policies: Mapping[str, Callable[[Any], Policy]],
        random: Callable[[], float] = lambda: 0.5,
        cell: Callable[[str], Cell] = _alone,
    ) -> None:
        self._policies = policies
        self._random = random
        self._cell = cell
        self._pools: dict[PoolId, Pool] = {}
        self._retired: WeakValueDictionary[PoolId, Pool] = WeakValueDictionary()
        self._workers: WeakValueDictionary[WorkerId, Worker] = WeakValueDictionary()
        self._lately: OrderedDict[PoolId, Pool] = OrderedDict()  # models of accounts that no group names
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
                pool = self._new(spec, workers, policies[spec.id])
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
            pool = self._retired[spec.id] = self._new(spec, self._bring(spec), self._policy(spec))
        if spec.is_of_account:
            if pool.spec is not spec and spec.id not in self._pools:  # no snapshot tells it of an edited account
                pool.update(spec, self._bring(spec), pool.policy)
            self._lately.pop(spec.id, None)
            self._lately[spec.id] = pool
            if len(self._lately) > _ACCOUNT_MODELS:
                self._lately.popitem(last=False)
        return pool

    def draft(self, spec: PoolSpec) -> Pool:
        """A pool as it would be with this specification, in the live state of today; no call can reach it."""
        workers = []
        for each in spec.workers:
            known = self._workers.get(each.id)
            is_same = known is not None and known.spec.url == each.url
            worker = Worker(each, known.breaker if known is not None and is_same else Breaker(spec.breaker))
            if known is not None and is_same:
                worker.health, worker.rest, worker.report, worker.quota = (
                    known.health,
                    known.rest,
                    known.report,
                    known.quota,
                )
                worker.in_flight, worker.turn, worker.cell = known.in_flight, known.turn, known.cell
            workers.append(worker)
        return Pool(spec, workers, self._policies[spec.policy.name](spec.policy.options), self._random)

    def worker(self, worker_id: WorkerId) -> Worker | None:
        """A live worker, if there is one of this id."""
        return self._workers.get(worker_id)

    def pools(self) -> Iterable[Pool]:
        """The pools of the current snapshot."""
        return self._pools.values()

    def workers(self) -> Iterable[Worker]:
        """The workers of the current snapshot."""
        return (worker for pool in self._pools.values() for worker in pool.workers)

    def set_health(self, views: Mapping[WorkerId, HealthView], now: float) -> None:
        """Take in what probes said of some workers; the others stay as they are."""
        for worker_id, view in views.items():
            worker = self._workers.get(worker_id)
            if worker is not None and (view.state, worker.health.state) == (Health.HEALTHY, Health.UNHEALTHY):
                worker.breaker.invite(now)
        self._views.update(views)
        for pool in self._pools.values():
            pool.now = now  # or who waits for an invited worker would be judged by the time before
        self._show_health()

    def set_loads(self, reports: Mapping[WorkerId, LoadReport]) -> None:
        """Take in what some workers said of their load."""
        for worker_id, report in reports.items():
            worker = self._workers.get(worker_id)
            if worker is not None:
                worker.report = report

    def set_rest(self, worker_id: WorkerId, reason: RestReason, remaining_s: float, now: float) -> None:
        """Another process heard a worker refuse."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.rest.extend(reason, now, now + remaining_s)

    def wake_waiting(self, now: float) -> None:
        """Look after the queues for what no event of this process tells: other processes, and time."""
        for pool in self._pools.values():
            if pool.waiting:
                pool.now = now
                pool.wake()

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
                breaker = Breaker(pool.breaker, self._random)
                worker = self._workers[spec.id] = Worker(spec, breaker, self._cell(spec.id))
            elif worker.spec.url != spec.url:  # elsewhere now: failures there say nothing
                worker.breaker = Breaker(pool.breaker, self._random)
                worker.rest.clear()
            worker.breaker.options = pool.breaker
            worker.spec = spec
            worker.health = self._view(pool, spec)
            workers.append(worker)
        return workers

    def _new(self, spec: PoolSpec, workers: Sequence[Worker], policy: Policy) -> Pool:
        return Pool(spec, workers, policy, self._random, self._cell(f"p{spec.id}"))

    def _policy(self, spec: PoolSpec) -> Policy:
        """The pool's policy, kept with what it has learnt unless it was edited."""
        pool = self._pools.get(spec.id)
        if pool is not None and pool.spec.policy == spec.policy:
            return pool.policy
        return self._policies[spec.policy.name](spec.policy.options)
