"""What a chat request says of itself."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from gateway.routing.requirement import Facts
from gateway.services.facts import chat_facts
from gateway.services.text import read_chat

USER = {"role": "user", "content": "hello there"}


def facts(*messages: Any, **fields: Any) -> Facts:
    body = msgspec.json.encode({"model": "m", "messages": list(messages) or [USER], **fields})
    return chat_facts(read_chat(body))


def parts(*kinds: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "see"}, *({"type": kind} for kind in kinds)]}


def test_facts_of_a_plain_message():
    found = facts(USER)
    assert (found.input_tokens, found.max_tokens, found.unit, found.has_tools, found.effort) == (
        2,
        None,
        1,
        False,
        None,
    )
    assert (found.inputs, found.outputs, found.content_form) == ({"text"}, {"text"}, "string")
    assert found.text == "hello there"


def test_prompt_of_a_conversation_begins_with_that_of_its_earlier_turn():
    system = {"role": "system", "content": "be brief"}
    earlier = facts(system, USER)
    later = facts(system, USER, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "more"})
    assert later.prompt.startswith(earlier.prompt)
    assert len(later.prompt) > len(earlier.prompt)


def test_prompt_has_tools_before_messages():
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert facts(USER, tools=tools).prompt.startswith(b'[{"type":"function"')


def test_token_ids_are_the_prompt_when_the_client_sends_them():
    found = facts(USER, input_ids=[5, 6, 7])
    assert (found.prompt, found.unit, found.input_tokens) == (array("I", [5, 6, 7]).tobytes(), 4, 3)


@pytest.mark.parametrize(
    ("kind", "medium"), [("image_url", "image"), ("input_audio", "audio"), ("video_url", "video"), ("other", None)]
)
def test_media_of_parts_are_inputs(kind: str, medium: str | None):
    found = facts(parts(kind))
    assert found.inputs == {"text"} | ({medium} if medium else set())
    assert found.content_form == "parts"


def test_picture_in_the_body_counts_as_a_picture_and_not_as_text():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    found = facts({"role": "user", "content": [{"type": "text", "text": "what is it"}, picture]})
    assert found.input_tokens < 2000


def test_audio_out_is_an_output_with_its_format():
    found = facts(USER, modalities=["text", "audio"], audio={"voice": "x", "format": "wav"})
    assert (found.outputs, found.audio_format) == ({"text", "audio"}, "wav")


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([USER], {"tools": [{"type": "function"}]}),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "4"}], {}),
    ],
)
def test_tools_offered_or_used_are_agent_traffic(messages: list[Any], fields: dict[str, Any]):
    assert facts(*messages, **fields).has_tools


def test_turn_stays_while_tools_answer_and_changes_with_the_next_user_message():
    call, result = {"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "4"}
    asked, tools = facts(USER), facts(USER, call, result)
    following = facts(USER, call, result, {"role": "assistant", "content": "4"}, USER)
    assert asked.turn == tools.turn != following.turn
    assert [each.is_continuation for each in (asked, tools, following)] == [False, True, False]


def test_long_text_is_cut_in_its_middle():
    text = facts({"role": "user", "content": "a" * 5000 + "b" * 5000}).text
    assert (len(text), text[:3000], text[-1000:]) == (4003, "a" * 3000, "b" * 1000)


@pytest.mark.parametrize(
    ("fields", "value"),
    [({"user": "u1"}, "u1"), ({"user": 7}, "7"), ({"user": None}, None), ({"user": {"a": 1}}, None), ({}, None)],
)
def test_field_is_a_top_level_text_or_number(fields: dict[str, Any], value: str | None):
    assert facts(USER, **fields).field("user") == value


@pytest.mark.parametrize("fields", [{"tools": 3}, {"reasoning_effort": 4}, {"modalities": "x"}, {"input_ids": ["a"]}])
def test_fields_of_another_type_leave_defaults(fields: dict[str, Any]):
    assert facts(USER, **fields).outputs == {"text"}


@pytest.mark.parametrize("content", [None, 5, {"a": 1}, [1, 2], [{"type": 3}]])
def test_content_of_another_shape_is_read_as_nothing(content: Any):
    assert facts({"role": "user", "content": content}).text == ""
