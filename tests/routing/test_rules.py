from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.routing.requirement import NO_FACTS, Facts
from gateway.routing.rules import Caller, describe, first_match, hangs_on_intent
from gateway.routing.snapshot import GroupSpec, RuleSpec

CALLER = Caller("red", "app", 1, ((b"x-env", b"Prod"), (b"x-empty", b"")))


def matches(rule: RuleSpec, facts: Facts = NO_FACTS, caller: Caller = CALLER, intent: str | None = None) -> bool:
    return first_match(GroupSpec("g", rules=(rule,)), "m", facts, caller, intent) is rule


@pytest.mark.parametrize(
    ("rule", "just", "not_yet"),
    [
        (RuleSpec("m", min_tokens=100), Facts(input_tokens=100), Facts(input_tokens=99)),
        (RuleSpec("m", has_images=True), Facts(inputs=frozenset({"text", "image"})), Facts()),
        (RuleSpec("m", has_images=False), Facts(), Facts(inputs=frozenset({"text", "image"}))),
        (RuleSpec("m", has_audio=True), Facts(inputs=frozenset({"text", "audio"})), Facts()),
        (RuleSpec("m", has_tools=True), Facts(has_tools=True), Facts()),
        (RuleSpec("m", min_effort="medium"), Facts(effort="Medium"), Facts(effort="low")),
        (RuleSpec("m", min_effort="low"), Facts(effort="high"), Facts(effort="enormous")),
        (RuleSpec("m", min_effort="low"), Facts(effort="low"), Facts()),
    ],
)
def test_rule_about_the_request_holds_at_its_bound_and_not_below(rule: RuleSpec, just: Facts, not_yet: Facts):
    assert (matches(rule, just), matches(rule, not_yet)) == (True, False)


@pytest.mark.parametrize(
    ("header", "holds"),
    [("X-Env", True), ("x-env: prod", True), ("X-Env:PROD", True), ("x-env: test", False), ("x-none", False)],
)
def test_rule_about_a_header_compares_without_case(header: str, holds: bool):
    assert matches(RuleSpec("m", header=header)) is holds


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (RuleSpec("m", keys=frozenset({"red/app"})), True),
        (RuleSpec("m", keys=frozenset({"blue/app"})), False),
        (RuleSpec("m", teams=frozenset({"red", "blue"})), True),
        (RuleSpec("m", teams=frozenset({"blue"})), False),
    ],
)
def test_rule_about_the_caller(rule: RuleSpec, holds: bool):
    assert matches(rule) is holds


def test_rule_about_the_intent_needs_one():
    rule = RuleSpec("m", intent="code")
    assert [matches(rule, intent=intent) for intent in ("code", "talk", None)] == [True, False, False]


def test_rule_holds_only_when_all_of_its_conditions_do():
    rule = RuleSpec("m", min_tokens=10, has_tools=True)
    facts = Facts(input_tokens=10, has_tools=True)
    assert (matches(rule, facts), matches(rule, replace(facts, has_tools=False))) == (True, False)


def test_first_rule_that_holds_wins():
    first, second = RuleSpec("a", min_tokens=100), RuleSpec("b")
    group = GroupSpec("g", rules=(first, second))
    assert first_match(group, "ab", Facts(input_tokens=100), CALLER, None) is first
    assert first_match(group, "ab", Facts(input_tokens=1), CALLER, None) is second


def test_rule_whose_member_cannot_be_asked_leaves_it_to_the_next_one():
    first, second = RuleSpec("a"), RuleSpec("b")
    group = GroupSpec("g", rules=(first, second))
    assert [first_match(group, among, NO_FACTS, CALLER, None) for among in ("b", "c")] == [second, None]


@pytest.mark.parametrize(
    ("rules", "hangs"),
    [
        ((RuleSpec("a", intent="code"),), True),
        ((RuleSpec("a", has_tools=True), RuleSpec("b", intent="code")), True),
        ((RuleSpec("a", has_tools=False), RuleSpec("b", intent="code")), False),
        ((RuleSpec("a", intent="code", has_tools=True),), False),
        ((), False),
    ],
)
def test_intent_is_needed_where_no_earlier_rule_decides_and_the_rest_of_its_rule_holds(
    rules: tuple[RuleSpec, ...], hangs: bool
):
    assert hangs_on_intent(GroupSpec("g", rules=rules), NO_FACTS, CALLER) is hangs


def test_rule_is_described_by_its_conditions():
    rule = RuleSpec("m", min_tokens=5, has_images=True, has_tools=False, header="x-env: secret", intent="code")
    expected = "at least 5 tokens and images and no tools and header x-env and intent code"
    assert (describe(rule), describe(RuleSpec("m"))) == (expected, "always")
