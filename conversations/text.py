"""Kept bodies as text for people: what was asked, what was answered. Any bytes are read; what is no text is replaced.

The result is plain text with neither NUL nor lone surrogates. It is what apps and models wrote: templates escape it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ToolCall:
    """A function that the model wants called; `arguments` is the model's text, JSON if all went well."""

    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """One choice of a chat answer, complete or as far as it came."""

    index: int
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str = ""


def display(raw: bytes) -> str:
    """The bytes as text."""
    return _clean(raw.decode("utf-8", "replace"))


def preview(request_body: bytes, limit: int = 200) -> str:
    """The last user message of a chat request on one line, cut to `limit` characters; "" without one."""
    messages = _member(_parse(request_body), "messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if _member(message, "role") == "user":
            line = " ".join(_content(_member(message, "content")).split())
            return line if len(line) <= limit else line[: limit - 1] + "…"
    return ""


def answers(response_body: bytes) -> list[Answer]:
    """The choices of a chat answer, whole or streamed, by index; none when it is neither."""
    whole = _parse(response_body)
    by_index: dict[int, Answer] = {}
    for document in [whole] if whole is not None else _events(response_body):
        choices = _member(document, "choices")
        for choice in choices if isinstance(choices, list) else []:
            index = _member(choice, "index")
            index = index if isinstance(index, int) else 0
            answer = by_index.setdefault(index, Answer(index))
            _extend(answer, _member(choice, "message") or _member(choice, "delta"))
            answer.finish_reason = _string(_member(choice, "finish_reason")) or answer.finish_reason
    return [by_index[index] for index in sorted(by_index)]


def error_message(response_body: bytes) -> str:
    """The message of an error answer or of the error event that ended a stream; "" without one."""
    whole = _parse(response_body)
    for document in [whole] if whole is not None else _events(response_body):
        error = _member(document, "error")
        if message := _string(_member(error, "message")) or _string(error):
            return message
    return ""


def _extend(answer: Answer, part: Any) -> None:
    answer.text += _content(_member(part, "content")) or _string(_member(part, "refusal"))
    answer.reasoning += _string(_member(part, "reasoning_content")) or _string(_member(part, "reasoning"))
    calls = _member(part, "tool_calls")
    for call in calls if isinstance(calls, list) else []:
        place = _member(call, "index")  # in a stream: which call this piece belongs to
        if not isinstance(place, int) or not 0 <= place < len(answer.tool_calls):
            answer.tool_calls.append(ToolCall())
            place = -1
        function = _member(call, "function")
        answer.tool_calls[place].name += _string(_member(function, "name"))
        answer.tool_calls[place].arguments += _string(_member(function, "arguments"))


def _content(content: Any) -> str:
    """A message's content: text, or parts of which those that are no text are named."""
    if not isinstance(content, list):
        return _string(content)
    parts = []
    for part in content:
        kind = _string(_member(part, "type"))
        parts.append(_string(_member(part, "text")) if kind in ("", "text") else f"[{kind}]")
    return "\n".join(parts)


def _events(raw: bytes) -> Iterator[Any]:
    """The JSON documents of an event stream; what is cut or no JSON is left out."""
    data: list[bytes] = []
    for line in raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:])
        elif not line and data:
            yield _parse(b"\n".join(data))
            data = []


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):  # cut, no JSON, a number of thousands of digits, or nested beyond sense
        return None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _string(value: Any) -> str:
    return _clean(value) if isinstance(value, str) else ""


def _clean(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
