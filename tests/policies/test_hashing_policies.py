"""consistent_hashing and prefix_hash: the same worker for what belongs together."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest

from gateway.policies.consistent_hashing import ConsistentHashing, ConsistentHashingOptions
from gateway.policies.prefix_hash import PrefixHash, PrefixHashOptions
from gateway.routing.policy import Policy
from gateway.routing.requirement import Need
from gateway.routing.worker import Worker
from tests.policies.candidates import NEED, Traffic, kept, need, worker, workers


def hashing(live: list[Worker], **options: Any) -> Policy:
    return kept(ConsistentHashing(ConsistentHashingOptions(**options), random.Random(1).random), live)


def prefix(live: list[Worker], **options: Any) -> Policy:
    return kept(PrefixHash(PrefixHashOptions(**options)), live)


def owner(policy: Policy, live: list[Worker], call: Need) -> str:
    return policy.choose(live, call, 0.0)[0].spec.name


def keyed(number: int) -> list[Need]:
    return [need(routing_key=f"key-{at}") for at in range(number)]


def test_hashing_key_stays_where_it_is_over_objects_and_orders():
    live = workers(0, 0, 0, 0)
    there = [owner(hashing(live), live, call) for call in keyed(50)]
    assert [owner(hashing(live[::-1]), live[::-1], call) for call in keyed(50)] == there


def test_hashing_places_keys_where_every_process_does():
    live = [worker(name) for name in "abc"]
    policy = hashing(live)
    assert "".join(owner(policy, live, call) for call in keyed(12)) == "aacbcaccacca"


def test_hashing_spreads_keys_over_all_workers():
    live = workers(*[0] * 8)
    policy = hashing(live)
    counts = Counter(owner(policy, live, call) for call in keyed(4000))
    assert all(350 < counts[each.spec.name] < 650 for each in live)


def test_hashing_worker_that_is_no_candidate_moves_its_own_keys_only():
    live = workers(0, 0, 0, 0, 0)
    policy = hashing(live)
    before = [owner(policy, live, call) for call in keyed(500)]
    after = [owner(policy, live[1:], call) for call in keyed(500)]
    assert [name for name in after if name == "0"] == []
    assert [now for was, now in zip(before, after, strict=True) if was != "0"] == [
        name for name in before if name != "0"
    ]


def test_hashing_new_worker_takes_only_its_own_part():
    live = workers(0, 0, 0, 0, 0)
    policy = hashing(live[:4])
    before = [owner(policy, live[:4], call) for call in keyed(1000)]
    policy.keep(live)
    after = [owner(policy, live, call) for call in keyed(1000)]
    moved = {now for was, now in zip(before, after, strict=True) if was != now}
    assert moved == {"4"}
    assert 100 < after.count("4") < 300


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (need(routing_key="k", conversation="one"), need(routing_key="k", conversation="two")),
        (need(conversation="k", field=lambda name: "one"), need(conversation="k", field=lambda name: "two")),
        (need(field={"user": "k"}.get), need(routing_key="k")),
    ],
)
def test_hashing_key_is_routing_key_then_conversation_then_field(first: Need, second: Need):
    live = workers(*[0] * 64)
    policy = hashing(live, field="user")
    assert owner(policy, live, first) == owner(policy, live, second) == owner(policy, live, need(routing_key="k"))


def test_hashing_without_key_goes_anywhere():
    live = workers(0, 0, 0)
    policy = hashing(live)
    counts = Counter(owner(policy, live, need(field={"user": "k"}.get)) for _ in range(300))
    assert min(counts.values()) > 70
    assert policy.choose(live, NEED, 0.0)[1] == ()


def test_hashing_hot_key_spills_over_and_nobody_is_beyond_the_bound():
    live = workers(0, 0, 0, 0)
    traffic = Traffic(hashing(live))
    for _ in range(100):
        traffic.call(live, need(routing_key="hot"), ends=False)
    assert sorted(traffic.served.values()) == [6, 31, 31, 32]  # no more than 1.25 * 100 / 4, rounded up


def test_hashing_without_bound_keeps_hot_key_together():
    live = workers(0, 0, 0, 0)
    traffic = Traffic(hashing(live, load_factor=0.0))
    for _ in range(100):
        traffic.call(live, need(routing_key="hot"), ends=False)
    assert [*traffic.served.values()] == [100]


def test_hashing_with_nobody_within_bound_takes_least_loaded():
    live = workers(5, 4, 6)
    chosen, terms = hashing(live, load_factor=0.1).choose(live, need(routing_key="k"), 0.0)
    assert (chosen, terms) == (live[1], [(5, 1), (4, 1), (6, 1)])


def test_hashing_key_that_is_no_text_has_a_place_too():
    live = workers(0, 0)
    assert hashing(live).choose(live, need(routing_key="\udcff"), 0.0)[0] in live


def test_prefix_same_beginning_goes_to_same_worker():
    live = workers(0, 0, 0, 0)
    policy = prefix(live, prefix_tokens=4)
    calls = [need(b"sixteen bytes..." + bytes([at])) for at in range(20)]
    assert len({owner(policy, live, call) for call in calls}) == 1


@pytest.mark.parametrize("unit", [1, 4])
def test_prefix_ends_with_its_last_token(unit: int):
    live = workers(*[0] * 64)
    policy = prefix(live, prefix_tokens=4)
    calls = [need(b"fifteen bytes.." + bytes([at]) + b"tail", unit=unit) for at in range(20)]
    assert len({owner(policy, live, call) for call in calls}) > 10


def test_prefix_spreads_beginnings_over_all_workers():
    live = workers(0, 0, 0, 0)
    served = Traffic(prefix(live)).calls(400, lambda at: live, (need(b"%d" % at) for at in itertools.count()))
    assert all(50 < served[each.spec.name] < 150 for each in live)


def test_prefix_overloaded_owner_is_relieved_by_least_loaded():
    live = workers(0, 0, 0)
    at = int(owner(prefix(live), live, need(b"hello")))
    live[at].in_flight, live[at - 1].in_flight = 11, 3
    assert owner(prefix(live), live, need(b"hello")) == live[at - 2].spec.name


@pytest.mark.parametrize(("options", "bound"), [({}, 10), ({"margin": 0}, 6.25), ({"load_factor": 3.0}, 15.0)])
def test_prefix_owner_is_kept_up_to_factor_or_margin(options: dict[str, Any], bound: float):
    live = workers(0, 0, 0)
    policy = prefix(live, **options)
    at = int(owner(policy, live, need(b"hello")))
    live[at].in_flight = 14
    chosen, terms = policy.choose(live, need(b"hello"), 0.0)
    assert [terms[each] for each in (at, at - 1, at - 2)] == [(14, bound), (0, bound), (0, bound)]
    assert (chosen is live[at]) == (bound >= 14)


def test_prefix_without_prompt_takes_least_loaded():
    live = workers(2, 1, 3)
    assert prefix(live).choose(live, NEED, 0.0)[0] is live[1]
