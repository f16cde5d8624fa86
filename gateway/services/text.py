"""Chat completions: what a request asks for, and an answer's stream as the client must see it.

Shapes: platform.openai.com/docs/api-reference/chat (read 2026-11). Usage in a stream: workers put it on a chunk of its
own with `choices: []`, on the finish chunk, on every chunk (cumulative), or beside a placeholder choice. A client that
asked gets one such chunk, with empty choices, last before `[DONE]`; a client that did not ask gets none.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Raw

from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.jsonfacts import member_spans, read_object, with_member, with_new_member
from gateway.protocol.sse import Framer, data_of, event_end, events, last_event_end, with_data
from gateway.protocol.usage import TokenCount, read_usage
from gateway.services.base import Call

CHAT = "chat"
CHAT_PATH = "/chat/completions"

_NAMES = (b"model", b"messages", b"stream", b"stream_options")
_ABSENT = Raw(b"")
_ASKING = b'{"include_usage":true}'
_MAX_TOKENS_DIGITS = 10
_BYTES_PER_TOKEN = 4  # English text under common vocabularies; an estimate is marked as one
_EMPTY = (b"null", b'""', b"[]", b"{}")
_USAGE = (b'"usage"', b'"usage":null', b'"usage": null')
_FINISH = (b'"finish_reason"', b'"finish_reason":null', b'"finish_reason": null')
_USAGE_SET = re.compile(rb'"usage"(?!\s*+:\s*+null)')
_FINISH_SET = re.compile(rb'"finish_reason"(?!\s*+:\s*+null)')
_USAGE_EVENT = b'data: {"id":%b,"object":"chat.completion.chunk","created":%b,"model":%b,"choices":[],"usage":%b}\n\n'
_FILLED_ARRAY = re.compile(rb"\[\s*+[^\s\]]")
_LEADING_MODEL = re.compile(rb'\s*+\{\s*+"model"\s*+:\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _ChatRequest(msgspec.Struct):
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    messages: Raw
    stream: bool | None = None
    stream_options: _StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: Raw = _ABSENT
    max_completion_tokens: Raw = _ABSENT


class _Answer(msgspec.Struct):
    usage: Raw = _ABSENT


class _Choice(msgspec.Struct):
    finish_reason: Raw = _ABSENT
    delta: Raw = _ABSENT


class _Chunk(msgspec.Struct):
    id: Raw = Raw(b'""')
    created: Raw = Raw(b"0")
    model: Raw = Raw(b'""')
    choices: list[_Choice] | None = None
    usage: Raw = _ABSENT
    error: Raw = _ABSENT


_request = msgspec.json.Decoder(_ChatRequest)
_answer = msgspec.json.Decoder(_Answer).decode
_chunk = msgspec.json.Decoder(_Chunk).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def read_chat(body: bytes) -> Call:
    """The call that a body asks for. Raises Fault INVALID_JSON or INVALID_VALUE, naming the field."""
    request = read_object(body, _request, _NAMES)
    if not request.model.isprintable():
        raise Fault(FaultKind.INVALID_VALUE, "'model': expected printable text.", param="model")
    if not _FILLED_ARRAY.match(request.messages):
        raise Fault(
            FaultKind.INVALID_VALUE, "'messages': expected an array with at least one message.", param="messages"
        )
    options = request.stream_options
    wants_usage = isinstance(options, _StreamOptions) and options.include_usage is True
    return Call(
        CHAT,
        request.model,
        request.stream is True,
        body,
        wants_usage,
        CHAT_PATH,
        _max_tokens(request),
        options is not msgspec.UNSET,
    )


def chat_body(call: Call, *, model: str | None, ask_usage: bool) -> bytes:
    """The call's body for a worker that knows the model as `model`; with `ask_usage`, a stream ends with token counts.

    Only the bytes of these values change; where nothing must change, it is the client's own object.
    """
    body = call.body
    if model is not None and model != call.model:
        leading = _LEADING_MODEL.match(body)
        value = msgspec.json.encode(model)
        if leading is None:
            body = with_member(body, "model", value)
        else:
            body = b"%b%b%b" % (body[: leading.start(1)], value, body[leading.end(1) :])
    if ask_usage and call.is_streaming and not call.wants_usage:
        body = _asking_usage(body, call.has_stream_options)
    return body


def chat_usage(body: bytes) -> TokenCount | None:
    """Token counts of a whole answer; None if it has none that can be read."""
    try:
        answer = _answer(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Fault(FaultKind.UPSTREAM_PROTOCOL, "The worker's answer is no JSON object.") from error
    return read_usage(answer.usage)


class ChatStream:
    """The EventStream of a chat call.

    Ordinary chunks are recognised by what they lack and go out as they came; only the first event and those that hold
    a usage object, a finish reason, an error or the end are parsed.
    """

    __slots__ = (
        "_chunk",
        "_delta_bytes",
        "_deltas",
        "_framer",
        "_least_bytes",
        "_usage",
        "_wants_usage",
        "error",
        "has_event",
        "is_finished",
        "usage",
    )

    is_between_events = True  # only whole events go out

    def __init__(self, *, wants_usage: bool) -> None:
        self.has_event = False
        self.is_finished = False
        self.error = False
        self.usage: TokenCount | None = None
        self._wants_usage = wants_usage
        self._framer = Framer()
        self._chunk: _Chunk | None = None  # whose id, time and model a usage chunk of ours takes
        self._usage: tuple[_Chunk, bytes] | None = None  # the last chunk with usage, which counts, and its event
        self._deltas = 0
        self._delta_bytes = 0
        self._least_bytes = 1 << 30  # of an event with a delta: about its envelope and one token

    @property
    def estimated_output_tokens(self) -> int:
        """One token an event, and more for what an event is longer than the shortest one."""
        longer = self._delta_bytes - self._deltas * self._least_bytes if self._deltas else 0
        return self._deltas + longer // _BYTES_PER_TOKEN

    def feed(self, piece: bytes) -> bytes:
        whole = self._framer.feed(piece)
        if (  # what nearly every piece is, told by searches alone
            self.has_event
            and b'"usage"' not in whole
            and b'"error"' not in whole
            and b"[DONE]" not in whole
            and whole.count(_FINISH[0]) == whole.count(_FINISH[1])
            and not self.error
        ):
            self._count(whole)
            return whole
        if self.error:
            return b""
        first = 0
        head = b""
        while not self.has_event and first < len(whole):
            end = event_end(whole, first)
            head += self._examined(whole[first:end])
            first = end
        special = self._first_special(whole, first)
        if special > first:
            self._count(whole[first:special])
        if first == 0 and special == len(whole):
            return whole
        out = head + whole[first:special] + self._examined(whole[special:])
        return whole if out == whole else out

    def finish(self) -> bytes:
        rest = self._framer.rest()
        data = data_of(rest)
        if data is not None:  # the empty line after it is missing, but its data may be whole
            rest = rest + b"\n\n" if data.strip() == b"[DONE]" or _read(data) is not None else b""
        out = self._examined(rest)
        return out if self.error else out + self._owed_usage()

    def _first_special(self, whole: bytes, start: int) -> int:
        """Where the first event from `start` begins that is more than a delta; the end if there is none."""
        found = [whole.find(b'"error"', start), whole.find(b"[DONE]", start)]
        if not _is_always_null(whole, _USAGE):
            found += [match.start() for match in _USAGE_SET.finditer(whole, start)][:1]
        if not self.is_finished and not _is_always_null(whole, _FINISH):
            found += [match.start() for match in _FINISH_SET.finditer(whole, start)][:1]
        at = min((place for place in found if place >= 0), default=-1)
        return len(whole) if at < 0 else max(start, last_event_end(whole[:at], start))

    def _examined(self, whole: bytes) -> bytes:
        out = b"".join([self._taken(event) for event in events(whole)])
        return whole if out == whole else out

    def _taken(self, event: bytes) -> bytes:
        """What goes out for one event. Empty lines before it belong to nothing and pass."""
        if self.error:
            return b""
        data = data_of(event)
        if data is None:
            return event
        self.has_event = True
        start = len(event) - len(event.lstrip(b"\r\n"))
        if data.strip() == b"[DONE]":
            self.is_finished = True
            return event[:start] + self._owed_usage() + event[start:]
        chunk = _read(data)
        if chunk is None:  # not ours to judge; a client that cannot read it will say so
            return event
        if _is_set(chunk.error):
            self.error = True
            return event
        return event[:start] + self._taken_chunk(chunk, event[start:], data)

    def _taken_chunk(self, chunk: _Chunk, event: bytes, data: bytes) -> bytes:
        choices = chunk.choices or []
        if self._chunk is None:
            self._least_bytes = len(event)  # the envelope, with a role or one token
        if choices or self._chunk is None:
            self._chunk = chunk
        self.is_finished = self.is_finished or any(_is_set(choice.finish_reason) for choice in choices)
        if any(_has_content(choice) for choice in choices):
            self._count(event)
        if not _is_set(chunk.usage):
            return event
        counted = read_usage(chunk.usage)
        if counted is not None or self._usage is None:
            self._usage, self.usage = (chunk, event), counted
        if not choices:
            return b""
        start, end = (member_spans(data) or {}).get("usage", (0, 0))
        return with_data(event, b"%bnull%b" % (data[:start], data[end:])) if end else event

    def _owed_usage(self) -> bytes:
        """The usage chunk, once, for a client that asked and a worker that counted."""
        if not self._wants_usage or self._usage is None or self._chunk is None:
            return b""
        self._wants_usage = False
        chunk, event = self._usage
        stream = self._chunk
        if not chunk.choices and bytes(chunk.id) == bytes(stream.id):
            return event
        facts = [bytes(raw).replace(b"\n", b" ") for raw in (stream.id, stream.created, stream.model, chunk.usage)]
        return _USAGE_EVENT % tuple(facts)

    def _count(self, whole: bytes) -> None:
        count = whole.count(b"data:")
        if count:  # not a comment
            self._deltas += count
            self._delta_bytes += len(whole)
            self._least_bytes = min(self._least_bytes, len(whole) // count)


def _asking_usage(body: bytes, has_options: bool) -> bytes:
    if not has_options:
        return with_new_member(body, "stream_options", _ASKING)
    spans = member_spans(body) or {}
    start, end = spans.get("stream_options", (0, 0))
    options = body[start:end]
    asking = with_member(options, "include_usage", b"true") if options.startswith(b"{") else _ASKING
    return with_member(body, "stream_options", asking)


def _max_tokens(request: _ChatRequest) -> int | None:
    digits = bytes(request.max_completion_tokens)
    if not digits.isdigit():
        digits = bytes(request.max_tokens)
    # None: absent, or nothing that a worker will accept, which is for the worker to say
    return int(digits) if digits.isdigit() and len(digits) <= _MAX_TOKENS_DIGITS else None


def _is_always_null(whole: bytes, forms: tuple[bytes, bytes, bytes]) -> bool:
    """Whether every occurrence of a name is followed by null; a wrong no costs time only."""
    name, tight, spaced = forms
    occurrences = whole.count(name)
    return occurrences == 0 or occurrences == whole.count(tight) + whole.count(spaced)


def _read(data: bytes) -> _Chunk | None:
    try:
        return _chunk(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_set(raw: Raw) -> bool:
    return bytes(raw) not in (b"", b"null", b'""')


def _has_content(choice: _Choice) -> bool:
    try:
        delta = _fields(choice.delta)
    except (msgspec.DecodeError, RecursionError):
        return False
    return any(name != "role" and bytes(value) not in _EMPTY for name, value in delta.items())
