"""What of a body is refused, checked against json.loads, and that a splice changes one value only."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.jsonfacts import (
    MAX_DEPTH,
    MAX_NODES,
    is_json_object,
    member_spans,
    read_object,
    with_member,
    with_new_member,
)


class Wanted(msgspec.Struct):
    model: str
    stream: bool | None = None


DECODER = msgspec.json.Decoder(Wanted)
NAMES = (b"model", b"stream", b"messages")
PAD = '"pad":"' + "long text " * 1000 + '",'  # makes a body large enough for the other way of finding strings


def read(body: bytes) -> Wanted:
    return read_object(body, DECODER, NAMES)


def refusal(body: bytes) -> tuple[FaultKind, str, str | None]:
    with pytest.raises(Fault) as caught:
        read(body)
    return caught.value.kind, caught.value.message, caught.value.param


def bodies(text: str) -> list[bytes]:
    """The members `text` behind a model, small, large, and large with many strings."""
    many = '"many":[' + ",".join(['"a"'] * 3000) + "],"
    return [b'{"model":"m",%b}' % f"{pad}{text}".encode() for pad in ("", PAD, many)]


@pytest.mark.parametrize(
    "text",
    [
        '"x":1',
        '"x":"\\ud83d\\ude00 \\u0000 \\u006dodel"',
        '"x":"say \\"model\\" \\\\"',
        '"x":{"model":1,"stream":2,"messages":3}',
        '"x":["model","model"]',
        '"x":[-9223372036854775808,9223372036854775807]',
        '"x":[1e300,-1.5E-3,0.1234567890123456789,12345678901234567890.5]',
        '"x":"12345678901234567890 1e999 [[[["',
        '"mod\\"el":1,"mo\\u00e9":2',
        '"x":"héllo 北京 \U0001f600"',
        '"unknown":1,"unknown":2',
    ],
)
def test_body_within_the_rules_is_read(text: str) -> None:
    for body in bodies(text):
        assert read(body) == Wanted("m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"x":9223372036854775808', "The body holds an integer that does not fit in 64 bits."),
        ('"x":[-9223372036854775809]', "The body holds an integer that does not fit in 64 bits."),
        ('"x":' + "1" * 6000, "The body holds an integer that does not fit in 64 bits."),
        ('"x":1e999', "The body holds a number that is out of range."),
        ('"x":-1E+400', "The body holds a number that is out of range."),
        ('"x":' + "9" * 400 + ".5", "The body holds a number that is out of range."),
        ('"x":"\\ud800"', "The body holds half of a surrogate pair."),
        ('"x":"\\uDE00 a"', "The body holds half of a surrogate pair."),
        ('"\\ud83d\\u0041":1', "The body holds half of a surrogate pair."),
    ],
)
def test_body_against_the_rules_is_refused(text: str, message: str) -> None:
    for body in bodies(text):
        assert refusal(body) == (FaultKind.INVALID_JSON, message, None)


@pytest.mark.parametrize("text", ['"x":NaN', '"x":Infinity', '"x":-Infinity', '"x":01', '"x":"\n"', '"x":"\\q"', '"x"'])
def test_body_with_broken_grammar_is_refused(text: str) -> None:
    for body in bodies(text):
        assert refusal(body)[0] is FaultKind.INVALID_JSON


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe5\x8c"])
def test_body_that_is_no_utf8_is_refused(bad: bytes) -> None:
    for template in (b'{"model":"m","x":"%b"}', b'{"model":"m","%b":1}', b'{"model":"m","x":[{"%b":1}]}'):
        assert "UTF-8" in refusal(template % bad)[1]


def test_body_with_a_byte_order_mark_is_refused_in_words() -> None:
    message = "The body begins with a byte order mark; JSON has none."
    assert refusal(b'\xef\xbb\xbf{"model":"m"}') == (FaultKind.INVALID_JSON, message, None)


@pytest.mark.parametrize("body", [b"", b"{", b'{"model":"m"} x', b'{"model":"m"}\0', '{"model":"m"}'.encode("utf-16")])
def test_body_that_is_no_json_is_refused(body: bytes) -> None:
    assert refusal(body)[0] is FaultKind.INVALID_JSON


@pytest.mark.parametrize("body", [b"[]", b'"model"', b"null", b"1"])
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    assert refusal(body) == (FaultKind.INVALID_JSON, "The body is expected to be a JSON object.", None)


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b"{}", "The field 'model' is missing.", "model"),
        (b'{"model":1}', "'model': expected str, got int.", "model"),
        (b'{"model":"m","stream":"yes"}', "'stream': expected bool | null, got str.", "stream"),
    ],
)
def test_field_of_the_wrong_type_is_named(body: bytes, message: str, param: str) -> None:
    assert refusal(body) == (FaultKind.INVALID_VALUE, message, param)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('"model":"m"', "model"),
        ('"x":{},"mod\\u0065l":"other"', "model"),
        ('"\\u006d\\u006f\\u0064\\u0065\\u006c":"other"', "model"),
        ('"stream":true,"x":[1,"stream"],"stream":false', "stream"),
        ('"messages":[{"model":1}],"messages":[]', "messages"),
        ('"stream" : null , "\\u0073tream"\n:true', "stream"),
    ],
)
def test_name_that_stands_twice_is_refused(text: str, name: str) -> None:
    message = f"The field '{name}' stands twice at the top level."
    for body in bodies(text):
        assert refusal(body) == (FaultKind.INVALID_JSON, message, name)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a" : [', "]}]")])
def test_depth_is_refused_one_beyond_the_limit(opening: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{")
    times = (MAX_DEPTH - 1) // levels
    last = "[" * (MAX_DEPTH - 1 - times * levels) + "1" + "]" * (MAX_DEPTH - 1 - times * levels)
    for body in bodies('"x":' + opening * times + last + closing * times):
        assert read(body) == Wanted("m")
    for body in bodies('"x":' + opening * times + f"[{last}]" + closing * times):
        assert refusal(body) == (FaultKind.INVALID_JSON, "The body is nested deeper than 64 levels.", None)


def test_depth_beyond_the_recursion_limit_is_refused_in_the_same_words() -> None:
    deep = b'{"model":"m","x":%b}' % (b"[" * 1_000_000 + b"]" * 1_000_000)
    assert refusal(deep)[1] == "The body is nested deeper than 64 levels."


def test_many_siblings_are_not_depth() -> None:
    assert read(b'{"model":"m","x":[%b]}' % b",".join([b"[[],{}]"] * 500)) == Wanted("m")


@pytest.mark.parametrize(
    ("unit", "values"), [("1", 1), ('"a"', 1), ("[ ]", 1), ("{}", 1), ('{"a":[0]}', 3), ('["b"]', 2)]
)
def test_values_are_refused_one_beyond_the_limit(unit: str, values: int) -> None:
    free = MAX_NODES - 3  # the object, the model and the array are values too
    units = [unit] * (free // values)
    units += ["1"] * (free % values)
    full = '{"model":"m","x":[' + ",".join(units)
    assert read(f"{full}]}}".encode()) == Wanted("m")
    assert refusal(f"{full},1]}}".encode())[1] == "The body holds more than 100000 values."


@pytest.mark.parametrize("unit", [b"[", b'{"a":', b"[],", b'"\\"",', b'"\\\\",', b"1,", b'"', b"\\", b'{"a":1},'])
def test_hostile_repetition_ends_soon(unit: bytes) -> None:
    for end in (b"", b"0]}", b"]}"):
        with pytest.raises(Fault):
            read(b'{"model":"m","x":[' + unit * (1_000_000 // len(unit)) + end)


JSON_STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | JSON_STRINGS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(JSON_STRINGS | st.sampled_from(["model", "stream"]), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(JSON_STRINGS, JSON_VALUES, max_size=5)


@given(
    fields=OBJECTS,
    is_ascii=st.booleans(),
    indent=st.sampled_from([None, 1]),
    place=st.integers(0, 5),
    large=st.booleans(),
)
def test_splice_changes_one_value_only(
    fields: dict[str, Any], is_ascii: bool, indent: int | None, place: int, large: bool
) -> None:
    items = [item for item in fields.items() if item[0] != "model"]
    items.insert(place, ("model", "old"))
    if large:
        items.append(("pad", "x\n" * 5000))
    body = json.dumps(dict(items), ensure_ascii=is_ascii, indent=indent).encode()
    body = b" \n" + body + b"\r\n"

    new = with_member(body, "model", b'"new \\u00e9"')

    assert json.loads(new) == {**dict(items), "model": "new é"}
    start, end = (member_spans(body) or {})["model"]
    assert new == body[:start] + b'"new \\u00e9"' + body[end:]
    assert body[start:end] == b'"old"'


@given(fields=OBJECTS, is_ascii=st.booleans())
def test_spans_hold_each_value(fields: dict[str, Any], is_ascii: bool) -> None:
    body = json.dumps(fields, ensure_ascii=is_ascii).encode()
    spans = member_spans(body)
    assert spans is not None
    assert {name: json.loads(body[start:end]) for name, (start, end) in spans.items()} == fields


def test_member_is_added_before_the_last_brace() -> None:
    assert with_new_member(b'{"a":"}"} \n', "b", b"{}") == b'{"a":"}","b":{}} \n'
    assert with_member(b'{"a":"}"}', "b", b"1") == b'{"a":"}","b":1}'
    assert with_member(b"{ }", "b", b"1") == b'{ "b":1}'


@pytest.mark.parametrize(
    "body",
    [b'{"a":1,"a":1}', b'{"a":1,"b":2,"a":3}', b'{"a":1,"\\u0061":2}', b'{"a":"   ","a":" "}', b'{"a":11,"b":1,"a":1}'],
)
def test_spans_of_an_object_with_a_name_twice_are_none(body: bytes) -> None:
    assert member_spans(body) is None
    with pytest.raises(Fault):
        with_member(body, "b", b"1")


@pytest.mark.parametrize(
    ("body", "expected"), [(b"{}", True), (b' {"a":[1]} ', True), (b"[]", False), (b"<html>", False), (b"", False)]
)
def test_json_object_is_told_from_everything_else(body: bytes, expected: bool) -> None:
    assert is_json_object(body) is expected


def test_json_object_too_deep_to_read_is_none() -> None:
    assert is_json_object(b'{"a":' * 100_000) is False


def _oracle(body: bytes) -> bool:
    """Whether the rules of protocol.md, section 6, let a small body pass, by way of json.loads."""

    def number(text: str) -> float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(text)
        return value

    def integer(text: str) -> int:
        value = int(text)
        if not -(2**63) <= value < 2**63:
            raise ValueError(text)
        return value

    def constant(text: str) -> None:
        raise ValueError(text)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        made["\0items"] = items  # those of the same name too
        return made

    try:
        text = body.decode()
        value = json.loads(
            text, parse_float=number, parse_int=integer, parse_constant=constant, object_pairs_hook=pairs
        )
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    if not isinstance(value, dict) or not isinstance(value.get("model"), str):
        return False
    if not isinstance(value.get("stream"), bool | None):
        return False
    names = [name for name, _ in value["\0items"]]
    return all(names.count(name.decode()) <= 1 for name in NAMES)


def _passes(body: bytes) -> bool:
    try:
        read(body)
    except Fault:
        return False
    return True


TOKENS = [
    *(
        '{"model":"m"',
        '{"model":"m",',
        "}",
        "[",
        "]",
        "{",
        ",",
        ":",
        '"',
        "\\",
        " ",
        "\n",
        "1",
        "-",
        "0",
        ".",
        "e",
        "E9",
    ),
    *(
        '"model":"a"',
        '"stream":true',
        '"stream":null',
        '"messages":[]',
        '"mod\\u0065l":"b"',
        '"x":',
        '{"model":1}',
        "[]",
    ),
    *("9223372036854775807", "9223372036854775808", "1e400", "NaN", "true", "null", '"\\ud83d\\ude00"', '"\\ud83d"'),
    *('"\\ude00"', '"\\\\ud800"', '"\\u0000"', '"é"', '"a\\"b"', '"\\\\"', "\x7f", "\x01"),
]


def test_random_bodies_are_judged_as_json_loads_judges_them() -> None:
    dice = random.Random(20261130)
    passed = 0
    for _ in range(40_000):
        parts = ['{"model":"m"'] if dice.random() < 0.8 else []
        for _ in range(dice.randrange(4)):
            parts.append(",")
            parts.append(dice.choice(['"x":', '"y" : ', ""]))
            parts += [dice.choice(TOKENS) for _ in range(dice.choice((1, 1, 1, 2, 5)))]
        body = "".join([*parts, "}"]).encode()
        if dice.random() < 0.05:
            at = dice.randrange(len(body))
            body = body[:at] + bytes([dice.randrange(256)]) + body[at + 1 :]
        judged = _passes(body)
        assert judged == _oracle(body), body
        if dice.random() < 0.1:
            large = body.replace(b"{", b"{" + PAD.encode(), 1)
            assert judged == _passes(large), body
        passed += judged
    assert passed > 4000
