"""How every worker stands, for pages and the API: what the operator wants, what probes and answers said of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings

from gateway.models import Pool, Worker
from gateway.routing.snapshot import WorkerId
from gateway.runtime.drains import DrainState, drain_states
from gateway.runtime.rests import Resting, current
from gateway.runtime.rows import Rows, newest_revision


@dataclass(frozen=True, slots=True)
class Standing:
    """One worker, or the account of a pool. `state` is `drained` when no process has a call of a draining one left."""

    model: str
    worker: str
    state: str  # active, draining, drained, disabled
    health: str  # unknown, healthy, unhealthy
    health_reason: str
    rest: str | None  # why it is asked last
    rests_since: datetime | None
    rests_until: datetime | None


def standings(rows: Rows) -> list[Standing]:
    """All workers in the order of their pools; what Redis does not say is left out, or still `draining`."""
    workers = [worker for each in rows.workers.values() for worker in each]
    states, resting = worker_states(workers), rests()
    found = []
    for pool in rows.pools:
        for worker in rows.workers[pool.pk]:
            found.append(_standing(pool, worker.name, states[worker.pk], worker, resting.get(worker_id(worker))))
        if pool.account is not None:
            rest = resting.get(WorkerId(f"a{pool.account.pk}p{pool.pk}"))
            found.append(_standing(pool, pool.account.name, "active", None, rest))
    return found


def worker_states(workers: Iterable[Worker]) -> dict[int, str]:
    """The state of each worker by its primary key, `drained` where a draining one is."""
    found = list(workers)
    draining = [worker_id(worker) for worker in found if worker.state == Worker.State.DRAINING]
    drained = drain_states(settings.REDIS_URL, draining, newest_revision() if draining else 0)
    is_drained = {id for id, state in drained.items() if state is DrainState.DRAINED}
    return {worker.pk: "drained" if worker_id(worker) in is_drained else worker.state for worker in found}


def rests() -> dict[WorkerId, Resting]:
    """Who rests now, as far as Redis says."""
    return {one.worker_id: one for one in current(settings.REDIS_URL) or []}


def worker_id(worker: Worker) -> WorkerId:
    """What the snapshot calls a worker."""
    return WorkerId(f"w{worker.pk}")


def _standing(pool: Pool, name: str, state: str, worker: Worker | None, rest: Resting | None) -> Standing:
    return Standing(
        model=pool.model,
        worker=name,
        state=state,
        health=worker.health if worker is not None else Worker.Health.UNKNOWN,
        health_reason=worker.health_reason if worker is not None else "",
        rest=rest.reason.value if rest is not None else None,
        rests_since=datetime.fromtimestamp(rest.since_unix_s, UTC) if rest is not None else None,
        rests_until=datetime.fromtimestamp(rest.until_unix_s, UTC) if rest is not None else None,
    )
