"""Kept bodies as text: usual chats, streams, and whatever else a body can be."""

from __future__ import annotations

import json
import random

import pytest

from conversations.text import Answer, ToolCall, answers, display, error_message, preview


def asked(*messages: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages}).encode()


def stream(*documents: object, end: str = "data: [DONE]\n\n", newline: str = "\n") -> bytes:
    text = "".join(f"data: {json.dumps(document)}\n\n" for document in documents) + end
    return text.replace("\n", newline).encode()


def delta(index: int = 0, finish_reason: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish_reason}]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (asked({"role": "user", "content": "first"}, {"role": "user", "content": " two\n lines "}), "two lines"),
        (asked({"role": "user", "content": "asked"}, {"role": "assistant", "content": "said"}), "asked"),
        (
            asked(
                {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}]}
            ),
            "see [image_url]",
        ),
        (asked({"role": "user", "content": "x" * 300}), "x" * 199 + "…"),
        (asked({"role": "system", "content": "only"}), ""),
        (asked("user", None, 5, {"role": "user"}), ""),
        (b"", ""),
        (b'{"messages": {"role": "user"}}', ""),
        (b'{"messages": [{"role": "user", "content": "cut', ""),
    ],
)
def test_preview_is_the_last_user_message(body: bytes, text: str) -> None:
    assert preview(body) == text


def test_answers_of_a_whole_answer() -> None:
    body = {
        "choices": [
            {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
            {
                "index": 0,
                "message": {
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "g"}}],
                },
                "finish_reason": "tool_calls",
            },
        ]
    }
    assert answers(json.dumps(body).encode()) == [
        Answer(0, "", "hm", [ToolCall("f", "{}"), ToolCall("g", "")], "tool_calls"),
        Answer(1, "b", "", [], "length"),
    ]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_answers_of_a_stream_put_the_pieces_of_each_choice_together(newline: str) -> None:
    body = stream(
        delta(role="assistant", content=""),
        *(delta(content="Hel"), delta(1, content="Oth"), delta(content="lo 漢𝒳"), delta(1, content="er")),
        delta(1, reasoning_content="because"),
        *(delta(finish_reason="stop"), delta(1, finish_reason="length"), {"choices": [], "usage": {}}),
        newline=newline,
    )
    assert answers(b": comment" + newline.encode() * 2 + body) == [
        Answer(0, "Hello 漢𝒳", "", [], "stop"),
        Answer(1, "Other", "because", [], "length"),
    ]


def test_answers_of_a_stream_put_tool_calls_together() -> None:
    def piece(index: int, **function: str) -> dict[str, object]:
        return delta(tool_calls=[{"index": index, "function": function}])

    body = stream(
        *(piece(0, name="f", arguments=""), piece(0, arguments='{"a"'), piece(1, name="g", arguments="{}")),
        *(piece(0, arguments=":1}"), delta(finish_reason="tool_calls")),
    )
    (answer,) = answers(body)
    assert answer.tool_calls == [ToolCall("f", '{"a":1}'), ToolCall("g", "{}")]


def test_answers_of_a_cut_stream_are_what_came() -> None:
    body = stream(delta(content="so "), delta(content="far"), delta(content="lost"), end="")
    assert answers(body[:-30]) == [Answer(0, "so far")]


def test_error_message_of_a_whole_answer_and_of_a_stream() -> None:
    error = {"error": {"message": "broke", "code": "stream_interrupted"}}
    assert error_message(json.dumps(error).encode()) == "broke"
    assert error_message(stream(delta(content="x"), error, end="")) == "broke"
    assert error_message(stream(delta(content="x"))) == ""


def test_text_for_display_has_neither_nul_nor_lone_surrogates() -> None:
    assert display(b"a\0b\xff\xed\xa0\x80") == "a\ufffdb\ufffd\ufffd\ufffd\ufffd"
    (answer,) = answers(b'{"choices":[{"message":{"content":"\\ud800 \\u0000 \\ud83d\\ude00"}}]}')
    assert answer.text == "\ufffd \ufffd 😀"


def test_surrogates_of_two_pieces_become_text_that_can_be_written() -> None:
    (answer,) = answers(stream(delta(content="\ud83d"), delta(content="\ude00")))
    assert answer.text.encode() == "\ufffd\ufffd".encode()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"choices":' * 5000,
        b"9" * 5000,
        b"[1]",
        b"null",
        b"\xff\xfe\0",
        b"data:\n\n",
        b'data: {"choices": [{"index": "x", "delta": 5}]}\n\n',
        b'{"choices": [{"index": true, "message": {"content": {"a": 1}, "tool_calls": [7, {"index": 99}]}}]}',
    ],
)
def test_hostile_bodies_are_read_without_an_error(body: bytes) -> None:
    assert (preview(body), error_message(body)) == ("", "")
    assert all(answer.text == "" for answer in answers(body))
    display(body).encode()


def test_any_bytes_are_read_without_an_error() -> None:
    chance = random.Random(5)
    whole = stream(delta(content="text \ud800"), delta(tool_calls=[{"index": 0, "function": {"name": "f"}}]))
    for _ in range(2000):
        body = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        for answer in answers(bytes(body)):
            answer.text.encode()
        preview(bytes(body)), error_message(bytes(body)), display(bytes(body))
