"""Pools to test with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gateway.routing.breaker import Breaker
from gateway.routing.policy import Policy, Terms
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need, Requirement
from gateway.routing.snapshot import PoolId, PoolSpec, WorkerId, WorkerSpec
from gateway.routing.worker import ALONE, Cell, Worker

WHOLE = Requirement("chat", "m", is_streaming=False)
NEED = Need(WHOLE)
STREAMED = Need(Requirement("chat", "m", is_streaming=True))


class Recency(Policy):
    """The candidate chosen longest ago."""

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        return min(candidates, key=lambda each: each.turn), ()


class LeastBusy(Policy):
    """The candidate with the fewest calls, then the one chosen longest ago."""

    term_names = ("calls",)

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        return min(candidates, key=lambda each: (each.load, each.turn)), [(each.load,) for each in candidates]


class Shared:
    """The counts of a host by name, and the cells of each of its processes."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int], list[int]] = {}

    def cells_of(self, process: int) -> Callable[[str], Cell]:
        return lambda name: SharedCell(self, name, process)

    def calls(self, name: str) -> int:
        return sum(part[0] for (owner, _), part in self.parts.items() if owner == name)


class SharedCell:
    def __init__(self, shared: Shared, name: str, process: int) -> None:
        self._shared = shared
        self._name = name
        self._process = process
        self._own = shared.parts.setdefault((name, process), [0, 0])

    def add(self, calls: int, tokens: int) -> None:
        self._own[0] += calls
        self._own[1] += tokens

    def other_calls(self) -> int:
        return self._shared.calls(self._name) - self._own[0]

    def other_tokens(self) -> int:
        parts = self._shared.parts.items()
        return sum(part[1] for (name, process), part in parts if name == self._name and process != self._process)


def worker(name: str, **fields: Any) -> WorkerSpec:
    return WorkerSpec(WorkerId(name), name, f"http://{name}:1", **fields)


def pool_spec(*workers: WorkerSpec, id: int = 1, **fields: Any) -> PoolSpec:
    return PoolSpec(PoolId(id), f"m{id}", workers=workers, **fields)


def pool_of(
    *workers: WorkerSpec,
    by: Policy | None = None,
    random: Callable[[], float] = lambda: 0.5,
    cell: Callable[[str], Cell] = lambda name: ALONE,
    **fields: Any,
) -> Pool:
    spec = pool_spec(*workers, **fields)
    live = [Worker(each, Breaker(spec.breaker), cell(each.id)) for each in workers]
    return Pool(spec, live, by or Recency(), random, cell("pool"))
