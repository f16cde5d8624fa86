"""Every policy by the name that configurations use. A new one is its file and a line here."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.policies.least_requests import LeastRequests, LeastRequestsOptions
from gateway.policies.random import RandomChoice, RandomOptions
from gateway.policies.round_robin import RoundRobin, RoundRobinOptions
from gateway.routing.pool import Policy


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy: what it is called, what forms say of it, its options and how to make one from them."""

    name: str
    summary: str
    options: type
    make: Callable[[Any], Policy]


_ENTRIES = (
    PolicyEntry("round_robin", "Whoever was chosen longest ago", RoundRobinOptions, lambda _: RoundRobin()),
    PolicyEntry("least_requests", "Whoever has the fewest in flight", LeastRequestsOptions, lambda _: LeastRequests()),
    PolicyEntry("random", "Anyone, evenly", RandomOptions, lambda _: RandomChoice(random.random)),
)

POLICIES: Mapping[str, PolicyEntry] = {entry.name: entry for entry in _ENTRIES}
