"""Every policy by the name that configurations use. A new one is its file and an entry here."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.policies.adaptive import Adaptive, AdaptiveOptions
from gateway.policies.bucket import Bucket, BucketOptions
from gateway.policies.cache_aware import CacheAware, CacheAwareOptions
from gateway.policies.consistent_hashing import ConsistentHashing, ConsistentHashingOptions
from gateway.policies.least_load import LeastLoad, LeastLoadOptions
from gateway.policies.least_requests import LeastRequests, LeastRequestsOptions
from gateway.policies.manual import Manual, ManualOptions
from gateway.policies.passthrough import Passthrough, PassthroughOptions
from gateway.policies.power_of_two import PowerOfTwo, PowerOfTwoOptions
from gateway.policies.predict import Predict, PredictOptions
from gateway.policies.prefix_hash import PrefixHash, PrefixHashOptions
from gateway.policies.random import RandomChoice, RandomOptions
from gateway.policies.round_robin import RoundRobin, RoundRobinOptions
from gateway.policies.weighted import Weighted, WeightedOptions
from gateway.policies.weighted_least_requests import WeightedLeastRequests, WeightedLeastRequestsOptions
from gateway.routing.policy import Policy


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy: what it is called, what forms say of it, its options and what makes one from them."""

    name: str
    summary: str
    options: type
    build: Callable[[Any], Policy]

    def make(self, options: Any) -> Policy:
        """One policy, for one pool; None stands for the default options."""
        return self.build(self.options() if options is None else options)


_ENTRIES = (  # in the order of forms; the first is what a new pool has
    PolicyEntry(
        "predict",
        "Where the call should end soonest, by what passing calls have taught of each",
        PredictOptions,
        lambda options: Predict(options, random.random),
    ),
    PolicyEntry("round_robin", "Whoever was chosen longest ago", RoundRobinOptions, lambda _: RoundRobin()),
    PolicyEntry("random", "Anyone, evenly", RandomOptions, lambda _: RandomChoice(random.random)),
    PolicyEntry(
        "passthrough", "The first that can take it, in the pool's order", PassthroughOptions, lambda _: Passthrough()
    ),
    PolicyEntry("weighted", "Each as often as its weight says", WeightedOptions, lambda _: Weighted()),
    PolicyEntry("least_requests", "Whoever has the fewest in flight", LeastRequestsOptions, lambda _: LeastRequests()),
    PolicyEntry(
        "weighted_least_requests",
        "Whoever has the fewest in flight for its weight",
        WeightedLeastRequestsOptions,
        lambda _: WeightedLeastRequests(),
    ),
    PolicyEntry(
        "power_of_two",
        "The less loaded of two drawn at random",
        PowerOfTwoOptions,
        lambda options: PowerOfTwo(options, random.random),
    ),
    PolicyEntry(
        "least_load", "Whoever would begin soonest, by the workers' own word on their load", LeastLoadOptions, LeastLoad
    ),
    PolicyEntry(
        "cache_aware",
        "Whoever was sent the longest beginning of the prompt, while the load is in balance",
        CacheAwareOptions,
        CacheAware,
    ),
    PolicyEntry(
        "consistent_hashing",
        "The same worker for the same routing key, conversation or body field",
        ConsistentHashingOptions,
        lambda options: ConsistentHashing(options, random.random),
    ),
    PolicyEntry("prefix_hash", "The same worker for prompts that begin alike", PrefixHashOptions, PrefixHash),
    PolicyEntry("bucket", "The same worker for prompts of like length", BucketOptions, Bucket),
    PolicyEntry(
        "manual",
        "The same worker for the same routing key or conversation, remembered by all processes and over restarts",
        ManualOptions,
        lambda options: Manual(options, random.random),
    ),
    PolicyEntry(
        "adaptive",
        "The best score of weight, calls in flight and time to first byte",
        AdaptiveOptions,
        lambda options: Adaptive(options, random.random),
    ),
)

POLICIES: Mapping[str, PolicyEntry] = {entry.name: entry for entry in _ENTRIES}
