"""What stands against the workers of a pool, in words: for the decision that a call leaves, and for its refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.candidates import Candidates, why_not
from gateway.routing.decision import Exclusion
from gateway.routing.requirement import Need, serves
from gateway.routing.snapshot import WorkerId
from gateway.routing.worker import Worker

LONGEST_RETRY_AFTER_S = 60.0  # a longer guess from a few calls would be worth nothing, and SDKs would not wait for it
_COUNTED = {Exclusion.PROFILE: "without a profile for this request"}


def excluded(
    workers: Sequence[Worker], found: Candidates, need: Need, now: float, tried: Collection[WorkerId], *, is_sole: bool
) -> list[tuple[str, str]]:
    """The workers that are not ready, each with the reason."""
    ready = {worker.spec.id for worker in found.ready}
    return [
        (worker.spec.name, why_not(worker, need, now, tried, is_sole=is_sole, is_panic=found.is_panic).value)
        for worker in workers
        if worker.spec.id not in ready
    ]


def nobody(workers: Sequence[Worker], need: Need, now: float) -> Fault:
    """Why no worker is eligible, in counts; the request's own fault when none of them could ever take it."""
    profiles = [worker.spec.profiles for worker in workers]
    if profiles and not any(serves(each, need.requirement) for each in profiles):
        return Fault(FaultKind.NO_COMPATIBLE_WORKER, "No worker of this model takes such a request.")
    reasons: Counter[str] = Counter()
    wait_s = []
    for worker in workers:
        why = why_not(worker, need, now, (), is_sole=False)
        reasons[_COUNTED.get(why, why.value)] += 1
        if why is Exclusion.CIRCUIT_OPEN:
            wait_s.append(worker.breaker.wait_s(now))
    total = len(workers)
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    message = f"{total} worker{'' if total == 1 else 's'}: {counts}" if total else "the pool has no workers"
    retry_after_s = min(max(1.0, min(wait_s, default=1.0)), LONGEST_RETRY_AFTER_S)
    return Fault(FaultKind.NO_WORKER, f"No worker can take this call ({message}).", retry_after_s=retry_after_s)
