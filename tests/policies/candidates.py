"""Workers and calls to ask policies about, and a way to let a policy serve some calls without a pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from gateway.routing.breaker import Breaker
from gateway.routing.options import BreakerOptions
from gateway.routing.policy import Policy, Track
from gateway.routing.requirement import Facts, Need, Requirement
from gateway.routing.snapshot import WorkerId, WorkerSpec
from gateway.routing.worker import LoadReport, Worker

REQUIREMENT = Requirement("chat", "m", is_streaming=False)


def need(prompt: bytes = b"", **fields: Any) -> Need:
    """A call with this prompt; the fields are the Need's own and those of its facts."""
    own = {name: fields.pop(name) for name in ("routing_key", "conversation") if name in fields}
    return Need(REQUIREMENT, lambda: Facts(prompt=prompt, **fields), **own)


NEED = need()


def worker(name: str, load: int = 0, turn: int = 0, report: LoadReport | None = None, **spec: Any) -> Worker:
    made = Worker(WorkerSpec(WorkerId(name), name, f"http://{name}:1", **spec), Breaker(BreakerOptions()))
    made.in_flight, made.turn, made.report = load, turn, report
    return made


def workers(*loads: int) -> list[Worker]:
    """Workers `0`, `1` ... with so many calls in flight."""
    return [worker(str(at), load) for at, load in enumerate(loads)]


def kept(policy: Policy, candidates: Sequence[Worker]) -> Policy:
    """The policy, told of its workers."""
    policy.keep(candidates)
    return policy


class Traffic:
    """Does what a pool does: chooses among the candidates, counts, tells. `served` counts by name."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.served: Counter[str] = Counter()
        self.order: list[str] = []

    def call(
        self, candidates: Sequence[Worker], call: Need = NEED, now: float = 0.0, *, ends: bool = True
    ) -> tuple[Worker, Track | None]:
        """One call. Unless it ends at once, it stays in flight."""
        chosen, _ = self.policy.choose(candidates, call, now)
        chosen.turn = len(self.order) + 1
        chosen.in_flight += 1
        track = self.policy.taken(chosen, call, now)
        self.served[chosen.spec.name] += 1
        self.order.append(chosen.spec.name)
        chosen.in_flight -= ends
        return chosen, track

    def calls(
        self, number: int, candidates: Callable[[int], Sequence[Worker]], needs: Iterable[Need] | None = None
    ) -> Counter[str]:
        """That many calls a second apart, each among the candidates of its number."""
        for at, call in zip(range(number), repeat(NEED) if needs is None else needs, strict=False):
            self.call(candidates(at), call, float(at))
        return self.served
