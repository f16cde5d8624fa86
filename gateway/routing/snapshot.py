"""The configuration that a process runs on: one frozen value with a revision number.

runtime/builder makes it, a process swaps it whole, a call keeps the one it started with. It holds resolved secrets,
which is why those fields are kept out of every repr.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NewType

from gateway.routing.options import BreakerOptions, HealthOptions, QueueOptions, RetryOptions, TimeoutOptions
from gateway.routing.requirement import Profile

WorkerId = NewType("WorkerId", str)
PoolId = NewType("PoolId", int)
TeamId = NewType("TeamId", int)
KeyId = NewType("KeyId", int)


class WorkerState(enum.Enum):
    """What the operator wants of a worker. Draining: running calls finish, no new ones."""

    ACTIVE = "active"
    DRAINING = "draining"
    DISABLED = "disabled"


class HistoryMode(enum.Enum):
    """What a finished call leaves in the history."""

    FULL = "full"
    METADATA = "metadata"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One upstream that serves a pool: a worker of ours, or a vendor account seen as one."""

    id: WorkerId
    name: str
    url: str  # base, without a trailing slash; a vendor account's may end in /v1
    weight: int = 1
    max_in_flight: int | None = None
    upstream_model: str | None = None  # None: the name the client sent goes on unchanged
    profiles: tuple[Profile, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    state: WorkerState = WorkerState.ACTIVE
    is_probed: bool = True
    credential: str | None = field(default=None, repr=False)  # sent as a bearer token


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy by name with its options, an instance of the class that the policy's registry entry names."""

    name: str
    options: Any


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """All that serves one model."""

    id: PoolId
    model: str
    aliases: tuple[str, ...] = ()
    backend: str = "openai"
    policy: PolicySpec = field(default_factory=lambda: PolicySpec("round_robin", None))
    rate_limit_per_min: int | None = None
    max_in_flight: int | None = None
    queue: QueueOptions = field(default_factory=QueueOptions)
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    timeouts: TimeoutOptions = field(default_factory=TimeoutOptions)
    health: HealthOptions = field(default_factory=HealthOptions)
    asks_stream_usage: bool = True
    history: HistoryMode = HistoryMode.FULL
    created_s: int = 0  # Unix time, for /v1/models
    workers: tuple[WorkerSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One API key, known by its digest only."""

    id: KeyId
    name: str
    team_id: TeamId
    team: str
    prefix: str
    digest: bytes = field(repr=False)
    models: frozenset[str] | None = None  # None: every model
    requests_per_min: int | None = None
    expires_s: float | None = None  # Unix time
    is_operator: bool = False

    def may_use(self, pool: PoolSpec) -> bool:
        """A key that lists an alias may use the pool by any of its names."""
        return self.models is None or not self.models.isdisjoint((pool.model, *pool.aliases))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole configuration. `pools` holds the enabled ones by model, `names` also by alias; keys go by prefix."""

    revision: int
    pools: Mapping[str, PoolSpec]
    names: Mapping[str, PoolSpec]
    keys: Mapping[str, KeySpec] = field(repr=False)
    fingerprint: str = ""  # equal fingerprints: nothing changed but the number
