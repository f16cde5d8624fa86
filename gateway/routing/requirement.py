"""What a call needs of a worker, and what a worker says it can do.

A worker without profiles serves everything its pool is asked. With profiles, one row must satisfy every fact of the
requirement; facts of different rows are never combined.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """Facts of one call. `model` is the name that the worker will be asked for."""

    service: str
    model: str
    is_streaming: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """One row of what a worker can do. Empty sets and None mean any."""

    services: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    streaming: bool | None = None

    def satisfies(self, need: Requirement) -> bool:
        return (
            (not self.services or need.service in self.services)
            and (not self.models or need.model in self.models)
            and (self.streaming is None or self.streaming == need.is_streaming)
        )
