"""Reading a chat request, and writing it for a worker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.usage import TokenCount
from gateway.services.base import Call
from gateway.services.registry import SERVICES

CHAT = SERVICES["chat"]
MESSAGES = [{"role": "user", "content": "hi"}]


def request(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode()


def refusal(body: bytes) -> tuple[FaultKind, str | None]:
    with pytest.raises(Fault) as caught:
        CHAT.read(body)
    return caught.value.kind, caught.value.param


def test_plain_request_is_read() -> None:
    body = request(temperature=0.5, unknown={"a": [1]})
    assert CHAT.read(body) == Call("chat", "m", False, body, False, "/chat/completions", None, False)
    assert CHAT.read(body).body is body


def test_streaming_request_with_usage_is_read() -> None:
    body = request(stream=True, stream_options={"include_usage": True, "other": 1}, max_tokens=5)
    assert CHAT.read(body) == Call("chat", "m", True, body, True, "/chat/completions", 5, True)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"max_tokens": 7, "max_completion_tokens": None}, 7),
        ({"max_tokens": -1}, None),
        ({"max_tokens": "7"}, None),
        ({"max_tokens": 7.5}, None),
        ({"max_tokens": 10**12}, None),
        ({"max_tokens": [1]}, None),
    ],
)
def test_most_tokens_are_read_where_they_are_a_number(fields: dict[str, Any], expected: int | None) -> None:
    assert CHAT.read(request(**fields)).max_tokens == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"model": ["m"]}, "model"),
        ({"model": "m" * 201}, "model"),
        ({"model": "m\0"}, "model"),
        ({"model": "m\n"}, "model"),
        ({"stream": "true"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ],
)
def test_field_with_a_wrong_value_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert refusal(request(**fields)) == (FaultKind.INVALID_VALUE, param)


def test_edges_of_fields_pass() -> None:
    assert CHAT.read(request(model="é" * 200, stream=None, stream_options=None)).model == "é" * 200
    assert refusal(b'{"model":"m","messages":[ \n ]}') == (FaultKind.INVALID_VALUE, "messages")
    assert refusal(b'{"messages":[1]}') == (FaultKind.INVALID_VALUE, "model")
    assert refusal(b'{"model":"m"}') == (FaultKind.INVALID_VALUE, "messages")


@pytest.mark.parametrize("name", ["model", "messages", "stream", "stream_options"])
def test_field_that_stands_twice_is_refused(name: str) -> None:
    spelt = "".join(f"\\u{ord(letter):04X}" for letter in name).encode()
    first = request(stream=True, stream_options={})[:-1]
    value = json.dumps(json.loads(first + b"}")[name]).encode()
    for again in (name.encode(), spelt):
        assert refusal(b'%b,"%b":%b}' % (first, again, value)) == (FaultKind.INVALID_JSON, name)


def test_body_is_the_clients_own_object_where_nothing_must_change() -> None:
    for body in (request(), request(stream=True, stream_options={"include_usage": True})):
        call = CHAT.read(body)
        assert CHAT.body(call, model=None, ask_usage=True) is body
        assert CHAT.body(call, model="m", ask_usage=True) is body
    streaming = CHAT.read(request(stream=True))
    assert CHAT.body(streaming, model="m", ask_usage=False) is streaming.body


@pytest.mark.parametrize(
    "template",
    [
        b'{"model":%b,"messages":[{"role":"model","content":"\\"model\\":\\"m\\""}]}',
        b' {\n "model" : %b , "messages":[1],"x":{"model":"m"}}\r\n',
        b'{"messages":[{"model":"m"},"model","m"],"model":%b,"tools":[{"model":["model"]}]}',
        b'{"messages":[1],"x":"\\\\","model": %b}',
        b'{"messages":[1],"mod\\u0065l":%b}',
    ],
)
def test_model_is_renamed_and_nothing_else(template: bytes) -> None:
    for old in (b'"m"', b'"\\u006d"'):
        call = CHAT.read(template % old)
        assert CHAT.body(call, model='vendor/"é"', ask_usage=False) == template % '"vendor/\\"é\\""'.encode()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"", b',"stream_options":{"include_usage":true}'),
        (b',"stream_options":null', b',"stream_options":{"include_usage":true}'),
        (b',"stream_options" : {}', b',"stream_options" : {"include_usage":true}'),
        (b',"stream_options":{"a":[1]}', b',"stream_options":{"a":[1],"include_usage":true}'),
        (b',"stream_options":{"include_usage" : false,"a":1}', b',"stream_options":{"include_usage" : true,"a":1}'),
        (b',"stream_options":{"include_usage":null}', b',"stream_options":{"include_usage":true}'),
        (b',"str\\u0065am_options":{}', b',"str\\u0065am_options":{"include_usage":true}'),
    ],
)
def test_usage_is_asked_for_by_a_splice(options: bytes, expected: bytes) -> None:
    template = b' {"messages":["stream_options"],"model":"m","stream":true%b} \n'
    call = CHAT.read(template % options)
    assert CHAT.body(call, model=None, ask_usage=True) == template % expected
    renamed = (template % expected).replace(b'"m"', b'"other"')
    assert CHAT.body(call, model="other", ask_usage=True) == renamed


def test_name_twice_in_an_object_that_must_change_is_refused() -> None:
    for text in (b'"x":1,"x":2,"stream_options":{}', b'"stream_options":{"include_usage":null,"include_usage":false}'):
        call = CHAT.read(b'{"messages":[1],"model":"m","stream":true,%b}' % text)
        with pytest.raises(Fault) as caught:
            CHAT.body(call, model=None, ask_usage=True)
        assert caught.value.kind is FaultKind.INVALID_JSON


FIELDS = st.dictionaries(
    st.sampled_from(["a", "é", 'q"', "user", "tools"]),
    st.recursive(
        st.none() | st.integers(-9, 9) | st.sampled_from(["model", "stream_options", '"', "\\", "é", "\U0001f600"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "stream"]), inner),
        max_leaves=8,
    ),
)


@given(FIELDS, st.permutations(["model", "messages", "stream"]), st.booleans(), st.booleans())
def test_written_body_differs_in_what_was_asked_only(
    fields: dict[str, Any], order: list[str], is_ascii: bool, is_large: bool
) -> None:
    own = {"model": "m", "messages": [{"content": '"model" \\ ' * 2000 if is_large else "x"}], "stream": True}
    asked = {**fields, **{name: own[name] for name in order}}
    body = json.dumps(asked, ensure_ascii=is_ascii).encode()
    new = CHAT.body(CHAT.read(body), model="n", ask_usage=True)
    assert json.loads(new) == {**asked, "model": "n", "stream_options": {"include_usage": True}}
    old_model, new_model = b'"model": "m"', b'"model": "n"'
    at = new.index(new_model)
    assert new[:at] + old_model + new[at + 12 : -len(b',"stream_options":{"include_usage":true}}')] + b"}" == body


def test_usage_of_a_whole_answer_is_read() -> None:
    choices = [{"index": i, "message": {"content": "a"}, "logprobs": {"content": []}} for i in (0, 1)]  # FC-18
    answer = {"id": "1", "choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    assert CHAT.usage(json.dumps(answer).encode()) == TokenCount(3, 4)
    assert CHAT.usage(b'{"id":"1"}') is None
    assert CHAT.usage(b'{"usage":null}') is None


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"usage":', b'{"a":' * 10_000])
def test_answer_that_is_no_json_object_is_a_fault_of_the_worker(body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        CHAT.usage(body)
    assert caught.value.kind is FaultKind.UPSTREAM_PROTOCOL
