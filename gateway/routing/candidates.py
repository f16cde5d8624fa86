"""Who may take a call: the workers of one pool sorted by what stands against each, for one need at one moment.

    never       not active, not the target, tried already, no profile fits, unhealthy, breaker keeps calls away
    later       at its own cap
    if need be  resting, or beyond its share in slow start: only when nobody else is a candidate

Exceptions, both because there is nothing better to do with the call:
- The sole active worker of a pool is used even when its breaker is open (the pool throttles it).
- Panic: fewer than half of the active workers are healthy with a breaker that permits; then breakers are ignored, but
  not a connection that was refused just now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway.routing.decision import Exclusion
from gateway.routing.health import Health
from gateway.routing.requirement import Need, serves
from gateway.routing.snapshot import WorkerId, WorkerState
from gateway.routing.worker import Worker

REFUSED_S = 5.0  # a host that refuses connections is starting or gone; probes tell more by then


@dataclass(slots=True)
class Candidates:
    """`ready` may be chosen now, `full` later; nobody in either: nobody is eligible."""

    ready: list[Worker]
    full: list[Worker]
    is_panic: bool = False


def sort_out(active: Sequence[Worker], need: Need, now: float, tried: Collection[WorkerId] = ()) -> Candidates:
    """Sort the active workers of a pool, in their order."""
    ready, full, is_panic = _sort(active, need, now, tried, is_panic=False)
    if len(active) > 1 and len(ready) + len(full) < len(active) and _must_panic(active, now):
        ready, full, is_panic = _sort(active, need, now, tried, is_panic=True)
    return Candidates(ready, full, is_panic)


def _sort(
    active: Sequence[Worker], need: Need, now: float, tried: Collection[WorkerId], *, is_panic: bool
) -> tuple[list[Worker], list[Worker], bool]:
    ready: list[Worker] = []
    full: list[Worker] = []
    slow: list[Worker] = []
    resting: list[Worker] = []
    is_sole = len(active) == 1
    is_picky = need.target is not None or bool(tried)
    unhealthy = Health.UNHEALTHY
    for worker in active:
        spec = worker.spec
        if (  # what nearly no worker is, looked at before the question costs a call
            is_picky or spec.profiles or worker.breaker.opened_until is not None or worker.health.state is unhealthy
        ) and _why_never(worker, need, now, tried, is_sole, is_panic) is not None:
            continue
        cap = spec.max_in_flight
        if cap is not None and worker.load + need.size > max(cap, need.size):  # a batch above the cap goes alone
            full.append(worker)
        elif now < worker.rest.until:
            resting.append(worker)
        elif worker.breaker.slow_since is not None and worker.is_held_back(now):
            slow.append(worker)
        else:
            ready.append(worker)
    if not ready:
        ready = slow or ([] if full else resting)
    return ready, full, is_panic


def due_trial(ready: Sequence[Worker], now: float) -> Worker | None:
    """The first worker that is due a trial: it failed, and the next call should find out if it has recovered."""
    for worker in ready:
        if worker.breaker.failures and worker.breaker.is_trial_due(now):
            return worker
    return None


def why_not(
    worker: Worker, need: Need, now: float, tried: Collection[WorkerId], *, is_sole: bool, is_panic: bool = False
) -> Exclusion:
    """What stands against a worker that `sort_out` did not put among the ready ones, for people to read."""
    if worker.spec.state is not WorkerState.ACTIVE:
        return Exclusion.DRAINING if worker.spec.state is WorkerState.DRAINING else Exclusion.DISABLED
    reason = _why_never(worker, need, now, tried, is_sole, is_panic)
    if reason is not None:
        return reason
    cap = worker.spec.max_in_flight
    if cap is not None and worker.load + need.size > max(cap, need.size):
        return Exclusion.FULL
    return Exclusion.RESTING if worker.rest.is_on(now) else Exclusion.SLOW_START


def _why_never(
    worker: Worker, need: Need, now: float, tried: Collection[WorkerId], is_sole: bool, is_panic: bool
) -> Exclusion | None:
    spec, breaker = worker.spec, worker.breaker
    if need.target is not None and spec.name != need.target:
        return Exclusion.NOT_THE_TARGET
    if tried and spec.id in tried:
        return Exclusion.TRIED
    if not serves(spec.profiles, need.requirement):
        return Exclusion.PROFILE
    if worker.health.state is Health.UNHEALTHY:
        return Exclusion.UNHEALTHY
    if breaker.opened_until is not None and not is_sole and not breaker.permits(now):
        if not is_panic:
            return Exclusion.CIRCUIT_OPEN
        if now < worker.refused_until:
            return Exclusion.REFUSED
    return None


def _must_panic(active: Sequence[Worker], now: float) -> bool:
    good = sum(worker.health.state is not Health.UNHEALTHY and worker.breaker.permits(now) for worker in active)
    return good * 2 < len(active)
