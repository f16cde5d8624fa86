from __future__ import annotations

import json

import pytest

from gateway.routing.intent import Intents, question, read_answer
from gateway.routing.snapshot import GroupSpec, RuleSpec

GROUP = GroupSpec(
    "g", intent_model="cheap", intents={"talk": "small talk", "code": "programs"}, rules=(RuleSpec("m", intent="code"),)
)


def answer(content: object) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


def test_question_numbers_the_kinds_and_tells_the_previous_one():
    asked = json.loads(question(GROUP, "go on", "code"))
    system, user = asked["messages"]
    assert (asked["model"], asked["temperature"], user) == ("cheap", 0, {"role": "user", "content": "go on"})
    assert "1. talk: small talk\n2. code: programs\nThe message before was of kind 2." in system["content"]


@pytest.mark.parametrize(
    ("body", "intent"),
    [
        (answer("2"), "code"),
        (answer("Kind 1."), "talk"),
        (answer("0"), ""),
        (answer("3"), None),
        (answer("code"), None),
        (answer(None), None),
        (b'{"choices":[]}', None),
        (b"junk", None),
        (b'{"x":' + b"[" * 100_000, None),
    ],
)
def test_answer_is_a_number_or_nothing(body: bytes, intent: str | None):
    assert read_answer(GROUP, body) == intent


def test_intent_is_known_for_ten_minutes_for_the_same_text_and_turn_before():
    intents = Intents()
    assert intents.learn(GROUP, "t", None, answer("2"), 0) == "code"
    known = [
        intents.known(GROUP, *what) for what in (("t", None, 599), ("t", "talk", 1), ("u", None, 1), ("t", None, 600))
    ]
    assert known == ["code", None, None, None]


@pytest.mark.parametrize("body", [None, b"junk"])
def test_failed_classifier_is_left_alone_for_half_a_minute(body: bytes | None):
    intents = Intents()
    assert intents.learn(GROUP, "t", None, body, 0) is None
    assert [intents.is_worth_asking(GROUP, now) for now in (0, 29.9, 30)] == [False, False, True]


def test_classifier_without_a_rule_that_looks_at_it_is_not_asked():
    intents = Intents()
    assert not intents.is_worth_asking(GroupSpec("g", intent_model="cheap"), 0)
    assert not intents.is_worth_asking(GroupSpec("g", rules=GROUP.rules), 0)
