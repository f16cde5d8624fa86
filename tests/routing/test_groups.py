from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.groups import MAX_DEPTH, Asked, Groups, problems
from gateway.routing.requirement import Facts
from gateway.routing.rules import Caller
from gateway.routing.snapshot import (
    AccountSpec,
    GroupSpec,
    MemberSpec,
    PoolId,
    PoolSpec,
    RuleSpec,
    Snapshot,
    Strategy,
)
from gateway.routing.strategies import Standing

CALLER = Caller("red", "app", 1)
ASKED = Asked(Facts(turn=b"1"), CALLER)
ACCOUNT = AccountSpec(1, "acme", "openai", "https://acme.example/v1")


def group(id: str, *refs: str, **fields: Any) -> GroupSpec:
    return GroupSpec(id, members=tuple(MemberSpec(ref) for ref in refs), **fields)


def snapshot(*groups: GroupSpec, pools: str = "abc") -> Snapshot:
    specs = {name: PoolSpec(PoolId(number), name) for number, name in enumerate(pools, 1)}
    return Snapshot(1, specs, specs, {}, {each.id: each for each in groups}, {"acme": ACCOUNT})


class Fleet(dict[str, Standing]):
    """How pools stand, by name."""

    def groups(self) -> Groups:
        return Groups(lambda pool, now: self.get(pool.model, Standing()), lambda: 0.5)


def planned(groups: Groups, view: Snapshot, id: str = "g", asked: Asked = ASKED, now: float = 0.0) -> list[str]:
    return [step.pool.model for step in groups.plan(view, view.groups[id], asked, now).steps]


def test_plan_expands_inner_groups_at_their_place_and_keeps_first_of_twins():
    view = snapshot(group("g", "a", "group/i", "b"), group("i", "acme/x/y", "a", "c"))
    walk = Fleet().groups().plan(view, view.groups["g"], ASKED, 0)
    assert [step.name for step in walk.steps] == ["a", "group/i > acme/x/y", "group/i > c", "b"]
    assert [step.why for step in walk.steps] == ["order", "order > order", "order > order", "order"]


def test_plan_cuts_loops_and_what_is_too_deep():
    loop = snapshot(group("g", "group/h", "a"), group("h", "group/g", "b"))
    assert planned(Fleet().groups(), loop) == ["b", "a"]
    chain = [group(f"g{depth}", "a", f"group/g{depth + 1}") for depth in range(MAX_DEPTH)]
    deep = snapshot(*chain, group(f"g{MAX_DEPTH}", "b"))
    assert planned(Fleet().groups(), deep, "g0") == ["a"]


def test_plan_leaves_out_members_that_there_are_not():
    view = snapshot(group("g", "nobody", "a", "group/none", "none/x"))
    assert planned(Fleet().groups(), view) == ["a"]


def test_plan_puts_resting_members_last_and_drops_nobody():
    fleet = Fleet(a=Standing(is_resting=True))
    view = snapshot(group("g", "a", "b", "c"))
    assert planned(fleet.groups(), view) == ["b", "c", "a"]
    fleet.update(b=Standing(is_resting=True), c=Standing(is_resting=True))
    assert planned(fleet.groups(), view) == ["a", "b", "c"]


def test_rule_puts_its_member_first_and_the_others_stay_in_order():
    view = snapshot(group("g", "a", "b", "c", rules=(RuleSpec("c", has_tools=True),)))
    asked = Asked(Facts(has_tools=True), CALLER)
    assert planned(Fleet().groups(), view, asked=asked) == ["c", "a", "b"]


def test_rule_of_an_inner_group_orders_that_group_only():
    inner = group("i", "b", "c", rules=(RuleSpec("c", has_tools=True),))
    view = snapshot(group("g", "a", "group/i"), inner)
    assert planned(Fleet().groups(), view, asked=Asked(Facts(has_tools=True), CALLER)) == ["a", "c", "b"]


def test_turn_stays_with_its_answerer_while_tools_answer_and_not_longer():
    groups, view = Fleet().groups(), snapshot(group("g", "a", "b", "c", strategy=Strategy.ROTATE))
    walk = groups.plan(view, view.groups["g"], ASKED, 0)
    groups.began(walk)
    groups.succeeded(walk, walk.steps[1], 0)
    tools = Asked(Facts(turn=b"1", is_continuation=True), CALLER)
    other = Asked(Facts(turn=b"2", is_continuation=True), CALLER)
    assert [planned(groups, view, asked=each)[0] for each in (tools, other, ASKED)] == ["b", "b", "b"]
    groups.began(groups.plan(view, view.groups["g"], ASKED, 0))
    assert [planned(groups, view, asked=each)[0] for each in (tools, other, ASKED)] == ["b", "c", "c"]


def test_conversation_stays_with_its_answerer_for_an_hour():
    groups, view = Fleet().groups(), snapshot(group("g", "a", "b"))
    asked = replace(ASKED, conversation="chat")
    walk = groups.plan(view, view.groups["g"], asked, 0)
    groups.succeeded(walk, walk.steps[1], 0)
    firsts = [planned(groups, view, asked=asked, now=now)[0] for now in (1, 3599, 3600)]
    assert firsts == ["b", "b", "a"]
    strangers = [replace(asked, caller=replace(CALLER, team_id=2)), replace(asked, conversation="other")]
    assert [planned(groups, view, asked=each)[0] for each in strangers] == ["a", "a"]


def test_conversation_leaves_an_answerer_that_rests_or_has_used_its_allowance():
    fleet = Fleet()
    groups, view = fleet.groups(), snapshot(group("g", "a", "b"))
    asked = replace(ASKED, conversation="chat")
    walk = groups.plan(view, view.groups["g"], asked, 0)
    groups.succeeded(walk, walk.steps[1], 0)
    firsts = []
    for standing in (Standing(used=0.97), Standing(used=0.98), Standing(is_resting=True)):
        fleet["b"] = standing
        firsts.append(planned(groups, view, asked=asked)[0])
    assert firsts == ["b", "a", "a"]


def test_group_that_does_not_keep_conversations_lets_them_go():
    groups, view = Fleet().groups(), snapshot(group("g", "a", "b", keeps_conversations=False))
    asked = replace(ASKED, conversation="chat")
    walk = groups.plan(view, view.groups["g"], asked, 0)
    groups.succeeded(walk, walk.steps[1], 0)
    assert planned(groups, view, asked=asked)[0] == "a"


def test_spent_tokens_count_in_every_group_on_the_way():
    groups, view = Fleet().groups(), snapshot(group("g", "group/i"), group("i", "a"))
    walk = groups.plan(view, view.groups["g"], ASKED, 0)
    groups.spent(walk.steps[0], 100, 0)
    assert (groups.strategies.tokens("g", "group/i", 0), groups.strategies.tokens("i", "a", 0)) == (100, 100)


def test_problems_name_unknown_members_loops_and_depth():
    chain = [group(f"d{depth}", f"group/d{depth + 1}") for depth in range(MAX_DEPTH)]
    groups = [
        group("g", "nobody", "group/none", "none/x", "acme/", "a"),
        group("h", "group/i"),
        group("i", "group/h"),
        *chain,
        group(f"d{MAX_DEPTH}", "a"),
    ]
    assert [str(problem) for problem in problems(groups, snapshot(*groups))] == [
        "groups[g].members[nobody]: there is no pool 'nobody'; expected a pool's name, account/model-id or group/id",
        "groups[g].members[group/none]: there is no enabled group 'none'",
        "groups[g].members[none/x]: there is no account 'none'",
        "groups[g].members[acme/]: 'acme/' lacks a part; expected account/model-id or group/id",
        "groups[h].members: leads back to itself: h > i > h",
        "groups[i].members: leads back to itself: i > h > i",
        "groups[d0].members: is nested deeper than 8 groups",
    ]


def test_problems_of_a_long_chain_are_told_without_climbing_down_it():
    chain = [group(f"d{depth}", f"group/d{depth + 1}" if depth < 599 else "a") for depth in range(600)]
    found = problems(chain[:1], snapshot(*chain))
    assert [str(problem) for problem in found] == ["groups[d0].members: is nested deeper than 8 groups"]


def test_groups_that_share_inner_groups_on_every_level_are_put_in_order_at_once():
    levels = [[f"l{level}w{wide}" for wide in range(9)] for level in range(MAX_DEPTH)]
    inner = [
        group(id, *(f"group/{ref}" for ref in below), "a", strategy=Strategy.SMART)
        for above, below in zip(levels, [*levels[1:], []], strict=True)
        for id in above
    ]
    assert planned(Fleet().groups(), snapshot(*inner), "l0w0") == ["a"]


def test_rule_whose_member_is_gone_is_passed_over_and_not_told():
    rules = (RuleSpec("gone", has_tools=False), RuleSpec("c", min_tokens=1))
    view = snapshot(group("g", "a", "gone", "c", rules=rules))
    walk = Fleet().groups().plan(view, view.groups["g"], ASKED, 0)
    assert ([step.ref for step in walk.steps], walk.rule) == (["c", "a"], "at least 1 tokens")


REFS = st.sampled_from(["a", "b", "c", "acme/x", "group/g0", "group/g1", "group/g2", "group/g3", "nobody"])


@given(
    members=st.lists(st.lists(REFS, max_size=5, unique=True), min_size=4, max_size=4),
    strategies=st.lists(st.sampled_from(Strategy), min_size=4, max_size=4),
    resting=st.sets(st.sampled_from(["a", "b", "c"])),
    conversation=st.sampled_from([None, "x"]),
)
def test_any_groups_give_each_pool_at_most_once_and_all_that_can_be_reached(
    members: list[list[str]], strategies: list[Strategy], resting: set[str], conversation: str | None
):
    groups = [group(f"g{at}", *refs, strategy=strategies[at]) for at, refs in enumerate(members)]
    view = snapshot(*groups)
    live = Fleet({name: Standing(is_resting=True) for name in resting}).groups()
    asked = replace(ASKED, conversation=conversation)
    walk = live.plan(view, view.groups["g0"], asked, 0)
    live.began(walk)
    if walk.steps:
        live.succeeded(walk, walk.steps[-1], 0)
    names = [step.pool.model for step in walk.steps]
    assert len(names) == len(set(names))
    assert set(names) == _reachable(members, 0, set())
    assert sorted(planned(live, view, "g0", asked)) == sorted(names)


def _reachable(members: list[list[str]], at: int, seen: set[int]) -> set[str]:
    if at in seen:
        return set()
    seen.add(at)
    found: set[str] = set()
    for ref in members[at]:
        if ref.startswith("group/g"):
            found |= _reachable(members, int(ref.removeprefix("group/g")), seen)
        elif ref != "nobody":
            found.add(ref)
    return found
