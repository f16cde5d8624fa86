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
from gateway.routing.requirement import Priority, Profile

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
    is_of_account: bool = False  # `account/model-id`, made for the name and not configured as a pool


class Strategy(enum.Enum):
    """In which order a group's members are asked."""

    ORDER = "order"  # as listed
    ROTATE = "rotate"  # the start moves on by one with each call
    WEIGHT = "weight"  # by chance, as often as the weights say
    SMART = "smart"  # whose allowance renews soonest, the nearly used up ones last
    USAGE = "usage"  # who has had the least of the tokens lately
    MANUAL = "manual"  # the picked one; the others stand behind it


class ErrorClasses(enum.Enum):
    """Which answers of a member let the next one be asked."""

    DEFAULT = "default"
    JACKDAW_STRICT = "jackdaw-strict"


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member of a group. `ref` is a pool's name, `account/model-id` or `group/<id>`."""

    ref: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """Puts one member first when all of its conditions hold; a condition that is None or empty always holds."""

    member: str  # the ref of a direct member
    min_tokens: int | None = None
    has_images: bool | None = None
    has_audio: bool | None = None
    has_tools: bool | None = None  # tools are offered, or a tool has answered: agent traffic
    min_effort: str | None = None  # low, medium, high
    header: str | None = None  # `name` or `name: value`, compared without case
    keys: frozenset[str] = frozenset()  # `team/key`
    teams: frozenset[str] = frozenset()
    intent: str | None = None  # one of the group's intents


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Several models behind one name, `group/<id>`."""

    id: str
    strategy: Strategy = Strategy.ORDER
    members: tuple[MemberSpec, ...] = ()
    rules: tuple[RuleSpec, ...] = ()
    picked: str | None = None  # the ref that `manual` puts first
    error_classes: ErrorClasses = ErrorClasses.DEFAULT
    max_attempts: int | None = None  # at workers, over all members
    keeps_conversations: bool = True  # a routing key or conversation stays with the member that answered it
    intent_model: str | None = None  # the model that tells which intent a text has
    intents: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # name -> what it means
    created_s: int = 0

    @property
    def name(self) -> str:
        return f"group/{self.id}"


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """A vendor account, any model of which may be asked for as `account/model-id`."""

    id: int
    name: str
    backend: str
    url: str
    credential: str | None = field(default=None, repr=False)


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
    priority: Priority = Priority.INTERACTIVE  # the best that its calls may have

    def may_use(self, pool: PoolSpec) -> bool:
        """A key that lists an alias may use the pool by any of its names; `account/*` is every model of an account."""
        if self.models is None or not self.models.isdisjoint((pool.model, *pool.aliases)):
            return True
        return f"{pool.model.partition('/')[0]}/*" in self.models and pool.is_of_account

    def may_use_group(self, group: GroupSpec) -> bool:
        """Whoever may use a group may use its members through it."""
        return self.models is None or group.name in self.models


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole configuration. `pools` holds the enabled ones by model, `names` also by alias; keys go by prefix.

    `pools` also holds the account models that groups name, so that their live state is kept. Groups go by id.
    """

    revision: int
    pools: Mapping[str, PoolSpec]
    names: Mapping[str, PoolSpec]
    keys: Mapping[str, KeySpec] = field(repr=False)
    groups: Mapping[str, GroupSpec] = field(default_factory=lambda: MappingProxyType({}))
    accounts: Mapping[str, AccountSpec] = field(default_factory=lambda: MappingProxyType({}))
    withheld: frozenset[str] = frozenset()  # names of disabled pools, which must not stand for an account's model
    fingerprint: str = ""  # equal fingerprints: nothing changed but the number
