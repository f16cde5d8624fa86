"""What a chat request says of itself beyond its model: for policies that look at prompts, for profiles and for rules.

Read only where somebody asks, from a body that `read_chat` has found sound. Nothing here refuses: what cannot be read
has its default, since the worker is the one to judge.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable

import msgspec
from msgspec import Raw

from gateway.routing.requirement import Facts
from gateway.services.base import Call

_ABSENT = Raw(b"")
_NOTHING = (b"", b"null", b"[]", b"{}", b'""')
_BYTES_PER_TOKEN = 4  # English text under common vocabularies
_MEDIA_TOKENS = {"image": 800, "audio": 500, "video": 4000}  # a part of usual size; vendors differ by more than 2
_PARTS = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
    "video": "video",
}
_FIRST_CHARS, _LAST_CHARS = 3000, 1000
_LONGEST_FIELD = 200


class _Message(msgspec.Struct):
    role: str = ""
    content: Raw = _ABSENT
    tool_calls: Raw = _ABSENT


class _Part(msgspec.Struct):
    type: str = "text"
    text: str = ""


class _Audio(msgspec.Struct):
    format: str | None = None


class _Request(msgspec.Struct):
    messages: list[Raw] = []
    tools: Raw = _ABSENT
    functions: Raw = _ABSENT
    reasoning_effort: str | None = None
    input_ids: list[int] | None = None
    modalities: list[str] | None = None
    audio: _Audio | None = None


_request = msgspec.json.Decoder(_Request).decode
_message = msgspec.json.Decoder(_Message).decode
_parts = msgspec.json.Decoder(list[_Part]).decode
_text = msgspec.json.Decoder(str).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def chat_facts(call: Call) -> Facts:
    """The facts of a chat call."""
    try:
        request = _request(call.body)
    except (msgspec.DecodeError, RecursionError):  # a field of another type, which is for the worker to refuse
        request = _Request()
    raws = [bytes(raw) for raw in request.messages]
    messages = [_read_message(raw) for raw in raws]
    contents = [_Content(message.content) for message in messages]
    inputs = frozenset({"text"}.union(*(content.media for content in contents)))
    last_user = max((at for at, message in enumerate(messages) if message.role == "user"), default=len(messages) - 1)
    tools = bytes(request.tools)
    if request.input_ids:
        prompt, unit = _as_ids(request.input_ids), 4
        tokens = len(request.input_ids)
    else:
        prompt, unit = b"".join([tools, *raws]), 1
        tokens = sum(content.tokens for content in contents) + len(tools) // _BYTES_PER_TOKEN
    return Facts(
        prompt=prompt,
        unit=unit,
        input_tokens=max(1, tokens),
        max_tokens=call.max_tokens,
        inputs=inputs,
        outputs=frozenset(request.modalities or ("text",)),
        content_form="parts" if any(content.is_parts for content in contents) else "string",
        audio_format=request.audio.format if request.audio else None,
        has_tools=_has_tools(request, messages),
        effort=request.reasoning_effort,
        turn=hashlib.blake2b(b"".join(raws[: last_user + 1]), digest_size=16).digest(),
        is_continuation=last_user < len(messages) - 1,
        text=_cut(contents[last_user].text) if contents else "",
        field=_field_reader(call.body),
    )


class _Content:
    """The content of one message: a text, or parts."""

    __slots__ = ("is_parts", "media", "text", "tokens")

    def __init__(self, raw: Raw) -> None:
        data = bytes(raw)
        self.is_parts = data.startswith(b"[")
        self.media: set[str] = set()
        parts: list[_Part] = []
        try:
            if self.is_parts:
                parts = _parts(data)
            elif data.startswith(b'"'):
                parts = [_Part(text=_text(data))]
        except (msgspec.DecodeError, RecursionError):
            pass  # a content of another shape
        self.media = {_PARTS[part.type] for part in parts if part.type in _PARTS}
        self.text = "\n".join(part.text for part in parts if part.text)
        media = sum(_MEDIA_TOKENS[_PARTS[part.type]] for part in parts if part.type in _PARTS)
        self.tokens = (len(self.text) if parts else len(data)) // _BYTES_PER_TOKEN + media


def _read_message(raw: bytes) -> _Message:
    try:
        return _message(raw)
    except (msgspec.DecodeError, RecursionError):
        return _Message()


def _has_tools(request: _Request, messages: list[_Message]) -> bool:
    offered = bytes(request.tools) not in _NOTHING or bytes(request.functions) not in _NOTHING
    return offered or any(
        message.role in ("tool", "function") or bytes(message.tool_calls) not in _NOTHING for message in messages
    )


def _as_ids(ids: list[int]) -> bytes:
    try:
        return array("I", ids).tobytes()
    except OverflowError:  # no vocabulary has such ids
        return b""


def _cut(text: str) -> str:
    if len(text) <= _FIRST_CHARS + _LAST_CHARS:
        return text
    return f"{text[:_FIRST_CHARS]}\n…\n{text[-_LAST_CHARS:]}"


def _field_reader(body: bytes) -> Callable[[str], str | None]:
    def field(name: str) -> str | None:
        try:
            value = bytes(_fields(body).get(name, _ABSENT))
            text = _text(value) if value.startswith(b'"') else value.decode()
        except (ValueError, RecursionError):
            return None
        is_scalar = bool(text) and not value.startswith((b"[", b"{", b"null"))
        return text[:_LONGEST_FIELD] if is_scalar else None

    return field
