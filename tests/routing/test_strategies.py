from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.snapshot import GroupSpec, MemberSpec, Strategy
from gateway.routing.strategies import Standing, Strategies


def group(strategy: Strategy, *refs: str, **fields: Any) -> GroupSpec:
    return GroupSpec("g", strategy, tuple(MemberSpec(ref) for ref in refs), **fields)


def order(
    strategies: Strategies, of: GroupSpec, now: float = 0.0, standings: dict[str, Standing] | None = None
) -> list[str]:
    found = strategies.order(of, of.members, lambda ref: (standings or {}).get(ref, Standing()), now)
    return [member.ref for member in found]


def fresh(seed: int = 1) -> Strategies:
    return Strategies(random.Random(seed).random)


def test_order_is_as_listed():
    assert order(fresh(), group(Strategy.ORDER, "b", "a")) == ["b", "a"]


def test_rotate_moves_its_start_on_and_each_group_for_itself():
    strategies, of = fresh(), group(Strategy.ROTATE, "a", "b", "c")
    other = GroupSpec("other", Strategy.ROTATE, of.members)
    seen = []
    for _ in range(4):
        seen.append("".join(order(strategies, of)))
        strategies.called(of)
    assert seen == ["abc", "bca", "cab", "abc"]
    assert order(strategies, other) == ["a", "b", "c"]


def test_weight_puts_each_first_as_often_as_it_says():
    strategies = fresh()
    of = GroupSpec("g", Strategy.WEIGHT, (MemberSpec("a", 3), MemberSpec("b", 1)))
    firsts = Counter(order(strategies, of)[0] for _ in range(4000))
    assert firsts["a"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_smart_prefers_soonest_renewal_and_leaves_the_used_up_for_last():
    standings = {
        "full": Standing(used=0.99, renews_at=10),
        "nearly": Standing(used=0.95, renews_at=10),
        "late": Standing(used=0.5, renews_at=9 * 3600),
        "soon": Standing(used=0.8, renews_at=2 * 3600),
        "unknown": Standing(),
    }
    of = group(Strategy.SMART, *standings)
    assert order(fresh(), of, standings=standings) == ["soon", "late", "unknown", "nearly", "full"]


def test_smart_compares_renewal_by_the_hour():
    standings = {"a": Standing(used=0.1, renews_at=3500), "b": Standing(used=0.1, renews_at=100)}
    assert order(fresh(), group(Strategy.SMART, "a", "b"), standings=standings) == ["a", "b"]


def test_usage_prefers_fewest_tokens_and_forgets_half_in_an_hour():
    strategies, of = fresh(), group(Strategy.USAGE, "a", "b")
    strategies.spent("g", "a", 1000, 0)
    assert order(strategies, of, 0) == ["b", "a"]
    strategies.spent("g", "b", 600, 3600)
    assert strategies.tokens("g", "a", 3600) == 500
    assert order(strategies, of, 3600) == ["a", "b"]


def test_manual_puts_the_picked_one_first():
    assert order(fresh(), group(Strategy.MANUAL, "a", "b", "c", picked="b")) == ["b", "a", "c"]


def test_keep_forgets_groups_and_members_that_are_gone():
    strategies, of = fresh(), group(Strategy.USAGE, "a", "b")
    rotating = GroupSpec("r", Strategy.ROTATE, of.members)
    strategies.spent("g", "a", 1000, 0)
    strategies.called(rotating)
    strategies.keep([])
    strategies.keep([of, rotating])
    assert (strategies.tokens("g", "a", 0), order(strategies, rotating)) == (0, ["a", "b"])


@given(
    strategy=st.sampled_from(Strategy),
    weights=st.lists(st.integers(1, 100), max_size=6),
    used=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=6, max_size=6),
    calls=st.integers(0, 9),
)
def test_order_is_always_a_permutation(strategy: Strategy, weights: list[int], used: list[float | None], calls: int):
    members = tuple(MemberSpec(f"m{at}", weight) for at, weight in enumerate(weights))
    of = GroupSpec("g", strategy, members, picked="m0")
    strategies = fresh()
    for _ in range(calls):
        strategies.called(of)
    standings = {f"m{at}": Standing(used=share) for at, share in enumerate(used)}
    assert sorted(order(strategies, of, standings=standings)) == sorted(member.ref for member in members)
