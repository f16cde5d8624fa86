"""A chat answer's stream as the client sees it. The FC numbers are those of the project's field cases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.sse import MAX_EVENT_BYTES
from gateway.protocol.usage import TokenCount
from gateway.services.text import ChatStream

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
COUNT = TokenCount(9, 4)


def chunk(*choices: dict[str, Any], **fields: Any) -> bytes:
    facts = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1764500000, "model": "m-1"}
    body = json.dumps({**facts, "choices": list(choices), **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"data: {body}\n\n".encode()


def choice(finish: str | None = None, index: int = 0, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


ROLE = chunk(choice(role="assistant", content=""))
TEXTS = [chunk(choice(content=text)) for text in ("Hé", "llo 北京", " 👩‍👩‍👧")]
STOP = chunk(choice("stop"))
USAGE_CHUNK = chunk(usage=USAGE)
PLAIN = [ROLE, *TEXTS, STOP, DONE]

# FC-2: where workers put usage
STANDARD = [ROLE, *TEXTS, STOP, USAGE_CHUNK, DONE]
NULL_FIRST = [event.replace(b"]}\n", b'],"usage":null}\n') for event in (ROLE, *TEXTS, STOP)] + [USAGE_CHUNK, DONE]
ON_FINISH = [ROLE, *TEXTS, chunk(choice("stop"), usage=USAGE), chunk(), DONE]
CUMULATIVE = [
    ROLE,
    *(chunk(choice(content=str(n)), usage={**USAGE, "completion_tokens": n}) for n in (1, 2, 3)),
    chunk(choice("stop"), usage=USAGE),
    DONE,
]
PLACEHOLDER = [ROLE, *TEXTS, STOP, chunk(choice(), usage=USAGE), DONE]
OTHER_ID = [ROLE, *TEXTS, STOP, chunk(usage=USAGE).replace(b"chatcmpl-1", b""), DONE]
AZURE = [chunk(prompt_filter_results=[]).replace(b"chatcmpl-1", b""), *STANDARD]
NO_DONE = STANDARD[:-1]
TWICE = [ROLE, *TEXTS, STOP, chunk(usage={**USAGE, "completion_tokens": 3}), USAGE_CHUNK, DONE]
VARIANTS = {
    "standard": STANDARD,
    "null first": NULL_FIRST,
    "on finish": ON_FINISH,
    "cumulative": CUMULATIVE,
    "placeholder": PLACEHOLDER,
    "other id": OTHER_ID,
    "azure": AZURE,
    "no done": NO_DONE,
    "twice": TWICE,
    "plain": PLAIN,
}
OTHERS = {
    "error": [ROLE, TEXTS[0], b'data: {"error":{"message":"x"}}\n\n', DONE],
    "broken": [ROLE, b"data: {nonsense\n\n", DONE],
    "unended": [*PLAIN[:-1], b"data: [DONE]\n"],
    "comments": [b": hello\n\n", ROLE, b":\n\n", *TEXTS, b"\n\n\n", STOP, USAGE_CHUNK, b"\n", DONE, b"\n"],
    "bom": [b"\xef\xbb\xbf", *STANDARD],
    "fields": [b"event: x\nid: 1\n" + event for event in CUMULATIVE],
    "lines": [event.replace(b',"created"', b',\ndata: "created"') for event in CUMULATIVE],
}


def run(pieces: list[bytes], *, wants_usage: bool) -> tuple[bytes, ChatStream]:
    stream = ChatStream(wants_usage=wants_usage)
    out = b"".join([stream.feed(piece) for piece in pieces])
    return out + stream.finish(), stream


def datas(out: bytes) -> list[Any]:
    events = [event.removeprefix(b"data: ") for event in out.split(b"\n\n") if event]
    return [json.loads(event) for event in events if event != b"[DONE]"]


def test_ordinary_stream_passes_as_the_same_objects() -> None:
    stream = ChatStream(wants_usage=False)
    for piece in PLAIN:
        assert stream.feed(piece) is piece
    assert stream.finish() == b""
    assert (stream.has_event, stream.is_finished, stream.error, stream.usage) == (True, True, False, None)


@pytest.mark.parametrize("name", VARIANTS)
def test_client_that_asked_gets_one_usage_chunk_at_the_end(name: str) -> None:  # FC-2
    out, stream = run(VARIANTS[name], wants_usage=True)
    chunks = datas(out)
    counted = [one for one in chunks if one.get("usage") is not None]
    if name == "plain":
        assert (counted, stream.usage, out) == ([], None, b"".join(PLAIN))
        return
    assert counted == [chunks[-1]]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], USAGE)
    assert {one["id"] for one in chunks} - {""} == {chunks[-1]["id"]}
    assert {(one["created"], one["model"], one["object"]) for one in chunks} == {
        (1764500000, "m-1", "chat.completion.chunk")
    }
    assert out.endswith(DONE) is (name != "no done")
    assert stream.usage == COUNT


@pytest.mark.parametrize("name", VARIANTS)
def test_client_that_did_not_ask_gets_no_usage(name: str) -> None:  # FC-3
    out, stream = run(VARIANTS[name], wants_usage=False)
    assert [one.get("usage") for one in datas(out)] == [None] * len(datas(out))
    deltas = [one["choices"] for event in VARIANTS[name] for one in datas(event) if one["choices"]]
    assert [one["choices"] for one in datas(out) if one["choices"]] == deltas
    assert stream.usage == (None if name == "plain" else COUNT)
    assert stream.is_finished


def test_standard_stream_is_not_rewritten() -> None:
    assert run(STANDARD, wants_usage=True)[0] == b"".join(STANDARD)
    assert run(STANDARD, wants_usage=False)[0] == b"".join(PLAIN)
    assert run(NULL_FIRST, wants_usage=True)[0] == b"".join(NULL_FIRST)


def test_usage_beside_a_choice_is_nulled_in_place() -> None:
    out, _ = run(CUMULATIVE, wants_usage=False)
    expected = b"".join(CUMULATIVE)
    for n in (1, 2, 3, 4):
        expected = expected.replace(b'{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":13}' % n, b"null")
    assert out == expected


@pytest.mark.parametrize("name", [*VARIANTS, *OTHERS])
@settings(max_examples=60)
@given(line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]), wants_usage=st.booleans(), data=st.data())
def test_any_cut_gives_the_same_bytes(name: str, line_end: bytes, wants_usage: bool, data: st.DataObject) -> None:
    stream = b"".join({**VARIANTS, **OTHERS}[name]).replace(b"\n", line_end)
    expected, whole = run([stream], wants_usage=wants_usage)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    out, cut = run(pieces, wants_usage=wants_usage)
    assert out == expected
    assert (cut.usage, cut.is_finished, cut.error) == (whole.usage, whole.is_finished, whole.error)


@pytest.mark.parametrize("name", [*VARIANTS, *OTHERS])
def test_one_byte_at_a_time_gives_the_same_bytes(name: str) -> None:  # FC-1
    stream = b"".join({**VARIANTS, **OTHERS}[name])
    pieces = [stream[i : i + 1] for i in range(len(stream))]
    assert run(pieces, wants_usage=True)[0] == run([stream], wants_usage=True)[0]


def test_text_cut_at_any_byte_arrives_whole() -> None:  # FC-1
    text = "héllo 北京今天多云 👩‍👩‍👧 end"
    stream = b"".join([ROLE, chunk(choice(content=text)), STOP, DONE])
    for at in range(len(stream)):
        out, _ = run([stream[:at], stream[at:]], wants_usage=False)
        assert out == stream


def test_half_an_event_never_goes_out() -> None:  # FC-4: an error event that follows must be read
    stream = ChatStream(wants_usage=False)
    assert stream.feed(ROLE + TEXTS[0] + TEXTS[1][:40]) == ROLE + TEXTS[0]
    assert not stream.is_finished
    assert stream.finish() == b""


def test_error_event_ends_what_goes_out() -> None:  # FC-4 (c)
    error = b'data: {"error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    for pieces in ([ROLE, TEXTS[0], USAGE_CHUNK, error, DONE], [ROLE + TEXTS[0] + USAGE_CHUNK + error + DONE]):
        out, stream = run(pieces, wants_usage=True)
        assert out == ROLE + TEXTS[0] + error
        assert (stream.error, stream.is_finished) == (True, False)


def test_error_as_first_event_is_seen() -> None:
    stream = ChatStream(wants_usage=False)
    stream.feed(b'data: {"error":"no"}\n\n')
    assert (stream.error, stream.has_event) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        '{"usage":{"prompt_tokens":1}}',
        '"finish_reason":"stop"',
        "[DONE]",
        "data: [DONE]\n\ndata: x\n\n",
        '{"error":{"message":"x"}}',
        '\\"error":1,"usage":{',
    ],
)
def test_markers_inside_text_mean_nothing(text: str) -> None:
    nested = {"usage": {"prompt_tokens": 1}, "finish_reason": "stop", "error": {"a": 1}}
    events = [ROLE, chunk(choice(content=text)), chunk(choice(nested=nested)), chunk(choice(), nested=nested)]
    out, stream = run(events, wants_usage=False)
    assert out == b"".join(events)
    assert (stream.is_finished, stream.error, stream.usage) == (False, False, None)


@pytest.mark.parametrize("space", [b"", b" ", b"  "])
@pytest.mark.parametrize("place", [0, 1])
def test_finish_reason_of_any_choice_is_the_end(space: bytes, place: int) -> None:
    choices = [choice("length" if place == index else None, index) for index in (0, 1)]
    event = chunk(*choices).replace(b'":', b'":' + space)
    stream = ChatStream(wants_usage=False)
    stream.feed(ROLE.replace(b'":', b'":' + space))
    assert not stream.is_finished
    assert stream.feed(event) is event
    assert stream.is_finished


def test_finish_reason_that_is_empty_is_none() -> None:
    stream = ChatStream(wants_usage=False)
    for event in (ROLE, chunk(choice("", content="a"))):
        stream.feed(event)
    assert not stream.is_finished


def test_done_alone_is_an_end() -> None:
    assert run([DONE], wants_usage=True)[1].is_finished


def test_stream_without_its_last_line_end_is_completed() -> None:
    for tail in (b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r"):
        out, stream = run([ROLE, TEXTS[0], USAGE_CHUNK, tail], wants_usage=True)
        assert out == ROLE + TEXTS[0] + USAGE_CHUNK + tail + b"\n\n"
        assert stream.is_finished


def test_comments_are_no_events_and_pass() -> None:
    stream = ChatStream(wants_usage=False)
    assert stream.feed(b": ping\n\n") == b": ping\n\n"
    assert not stream.has_event
    assert stream.feed(ROLE) is ROLE
    assert stream.has_event
    assert stream.feed(b": ping\n\n") == b": ping\n\n"


def test_parallel_tool_calls_pass_unchanged() -> None:  # FC-17 (a), (b)
    def call(index: int, **fields: Any) -> dict[str, Any]:
        return choice(tool_calls=[{"index": index, **fields}])

    opened = [chunk(call(i, id=f"call_{i}", function={"name": f"f{i}", "arguments": ""})) for i in (0, 1)]
    parts = [
        chunk(call(i % 2, function={"arguments": part})) for i, part in enumerate(['{"usage"', '{"a":', ":{}}", "1}"])
    ]
    events = [ROLE, *opened, *parts, chunk(choice("tool_calls")), DONE]
    out, stream = run(events, wants_usage=False)
    assert out == b"".join(events)
    assert stream.is_finished


def test_two_choices_with_logprobs_pass_unchanged_and_count_once() -> None:  # FC-18
    logprobs = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]}
    texts = [chunk(choice(index=i % 2, logprobs=logprobs, content=str(i))) for i in range(6)]
    events = [*texts, chunk(choice("stop", 0)), chunk(choice("stop", 1)), USAGE_CHUNK, DONE]
    out, stream = run(events, wants_usage=True)
    assert out == b"".join(events)
    assert stream.usage == COUNT


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_passes_unchanged(field: str) -> None:  # FC-19
    events = [ROLE, *[chunk(choice(**{field: text})) for text in ("so", " then")], *TEXTS, STOP, DONE]
    assert run(events, wants_usage=False)[0] == b"".join(events)


@pytest.mark.parametrize("usage", [5, {}, "x", [1]])
def test_usage_that_cannot_be_read_never_replaces_one_that_can(usage: Any) -> None:
    out, stream = run([ROLE, STOP, USAGE_CHUNK, chunk(usage=usage), DONE], wants_usage=False)
    assert out == ROLE + STOP + DONE
    assert stream.usage == COUNT


def test_event_beyond_the_limit_is_a_fault() -> None:
    pieces = [b"data: " + b"x" * 65_530] * (MAX_EVENT_BYTES // 65_536 + 1)
    with pytest.raises(Fault) as caught:
        run([ROLE, *pieces], wants_usage=False)
    assert caught.value.kind is FaultKind.STREAM_INTERRUPTED


@pytest.mark.parametrize(
    "hostile", [b'{"a":' * 50_000, b"[" * 100_000, b'{"choices":5,"error":"x"}', b'{"usage":1,"usage":2}']
)
def test_event_that_is_no_chunk_passes(hostile: bytes) -> None:
    event = b"data: " + hostile + b"\n\n"
    out, _ = run([ROLE, STOP.replace(b"}\n", b',"error":null}\n'), event, DONE], wants_usage=False)
    assert out.startswith(ROLE)
    assert out.endswith(DONE)


@pytest.mark.parametrize(
    ("texts", "least", "most"),
    [([], 0, 0), (["a"], 1, 1), (["word"] * 10, 10, 12), (["a"] + ["x" * 400] * 3, 280, 312)],
)
def test_tokens_are_estimated_from_events_and_bytes(texts: list[str], least: int, most: int) -> None:
    events = [ROLE, b": ping\n\n", *[chunk(choice(content=text)) for text in texts], STOP, DONE]
    for pieces in (events, [ROLE, b"".join(events[1:])]):
        estimate = run(pieces, wants_usage=False)[1].estimated_output_tokens
        assert least <= estimate <= most
