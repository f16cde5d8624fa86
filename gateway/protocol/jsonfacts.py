"""JSON from outside: what is refused before it is acted on, and changing one value without touching the other bytes.

The bytes that are judged are the bytes that go on, so whatever two parsers may read differently is refused: names that
stand twice, numbers out of range, bytes that are no UTF-8, and shapes that are expensive (too deep, too many values).

msgspec checks the grammar of everything, fields that it skips included: escapes, surrogate pairs, control characters,
NaN and Infinity, what follows the value. It does not look at the UTF-8 and the size of the numbers that it skips, nor
at depth below the recursion limit, nor at names that stand twice. These are checked here, on an *outline*: the body
with each string replaced by `_`, found in linear time and short where the body is mostly text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from gateway.protocol.faults import Fault, FaultKind

T = TypeVar("T")

MAX_DEPTH = 64
MAX_NODES = 100_000  # values of any kind, nested ones included

_BOM = b"\xef\xbb\xbf"
_BACKSLASH = ord("\\")
_PLAIN = bytes.maketrans(b"0123456789E{}\t\n\r", b"0000000000e[]   ")
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]")))
_LONG_DIGITS = b"0" * 19  # the shortest integer that may be out of range
_MAX_NUMBER_LENGTH = 1000
_WALK_BYTES = 8192  # above this, finding quotes one by one beats splitting at them all
_WALK_QUOTES = 128  # ... unless there are many
_NAME_LENGTH = 96  # every name we look for, each letter written as \uXXXX, is shorter

_EMPTY = re.compile(rb"\[ *+\]")
_NUMBER = re.compile(rb"-?\d++(\.\d++)?+([eE][+-]?\d++)?+")
_SURROGATE = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
_FIELD = re.compile(r"`\$\.([a-z_.]+)`|required field `([a-z_]+)`")
_KEY = re.compile(rb'\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:\s*+', re.DOTALL)
_COMMA = re.compile(rb"\s*+,")
_CLOSE = re.compile(rb"\s*+\}\s*+")

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_object(body: bytes, decoder: msgspec.json.Decoder[T], names: Sequence[bytes]) -> T:
    """The body as the decoder's type, if nothing in it is ambiguous; none of `names` may stand twice at its top level.

    Raises Fault INVALID_JSON or INVALID_VALUE that names the field where there is one. Fields that the type does not
    know are free. Linear in the size of the body, whatever is in it.
    """
    try:
        value = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from error
    except msgspec.DecodeError as error:
        raise _malformed(body, error) from error
    except RecursionError as error:
        raise _too_deep() from error
    if not body.isascii():
        _refuse_bad_text(body)
    outline, strings = _outline(body)
    plain = outline.translate(_PLAIN)
    opened = plain.count(b"[")
    if len(body) > MAX_NODES and plain.count(b",") + opened >= MAX_NODES:
        _refuse_many(plain, opened)
    if opened > MAX_DEPTH:
        _refuse_deep(plain)
    if _LONG_DIGITS in plain or b"0e" in plain:
        _refuse_numbers(outline)
    if max(map(strings.count, names)) > 1 or (_BACKSLASH in body and _may_spell(strings)):
        _refuse_duplicates(body, names)
    return value


def is_json_object(body: bytes) -> bool:
    """Whether `body` is one JSON object; says nothing of its size, depth or names."""
    try:
        _members(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def member_spans(body: bytes) -> dict[str, tuple[int, int]] | None:
    """Where each top-level value of a well-formed object begins and ends; None if a name stands twice.

    msgspec says which values there are, in order; laying them end to end over the text gives their places. They reach
    the closing brace exactly when no value was dropped in favour of a later one of the same name.
    """
    spans = {}
    at = body.index(b"{") + 1
    members = _members(body)
    for name, value in members.items():
        raw = bytes(value)
        key = _KEY.match(body, at)
        if key is None or not body.startswith(raw, key.end()):
            return None
        at = key.end() + len(raw)
        spans[name] = (key.end(), at)
        comma = _COMMA.match(body, at)
        if comma is None:
            break
        at = comma.end()
    return spans if len(spans) == len(members) and _CLOSE.fullmatch(body, at) else None


def with_member(body: bytes, name: str, value: bytes) -> bytes:
    """An object with no name twice, one top-level value replaced, or added at its end; all other bytes as they were."""
    spans = member_spans(body)
    if spans is None:
        raise Fault(FaultKind.INVALID_JSON, f"A top-level name stands twice, '{name}' cannot be set.")
    if name in spans:
        start, end = spans[name]
        return b"%b%b%b" % (body[:start], value, body[end:])
    return with_new_member(body, name, value, is_first=not spans)


def with_new_member(body: bytes, name: str, value: bytes, *, is_first: bool = False) -> bytes:
    """A well-formed object that lacks the plain `name`, with that member added at its end."""
    brace = body.rindex(b"}")
    return b'%b%b"%b":%b%b' % (body[:brace], b"" if is_first else b",", name.encode(), value, body[brace:])


def _outline(body: bytes) -> tuple[bytes, list[bytes]]:
    """A well-formed body with each string as `_`, and its strings; of a large body, the strings that can be names."""
    if len(body) > _WALK_BYTES:
        walked = _walked(body)
        if walked is not None:
            return walked
    if _BACKSLASH in body:  # valid JSON has backslashes in strings only; the length stays
        body = body.replace(b"\\\\", b"..").replace(b'\\"', b"..")
    parts = body.split(b'"')
    return b"_".join(parts[::2]), parts[1::2]


def _walked(body: bytes) -> tuple[bytes, list[bytes]] | None:
    """The outline by jumping from quote to quote; None when there are too many of them for this way."""
    find = body.find
    parts: list[bytes] = []
    strings: list[bytes] = []
    at = 0
    left = _WALK_QUOTES
    while left > 0:
        left -= 1
        start = find(b'"', at)
        if start < 0:
            parts.append(body[at:])
            return b"_".join(parts), strings
        parts.append(body[at:start])
        end = find(b'"', start + 1)
        while body[end - 1] == _BACKSLASH and left > 0 and _is_escaped(body, end):
            left -= 1
            end = find(b'"', end + 1)
        if end - start <= _NAME_LENGTH:
            strings.append(body[start + 1 : end])
        at = end + 1
    return None


def _may_spell(strings: list[bytes]) -> bool:
    """Whether one of the strings could be a name with letters written as escapes."""
    return bool([string for string in strings if len(string) <= _NAME_LENGTH and b"\\u00" in string])


def _is_escaped(body: bytes, at: int) -> bool:
    """Whether an odd number of backslashes stands before `at`."""
    first = at
    while body[first - 1] == _BACKSLASH:
        first -= 1
    return (at - first) % 2 == 1


def _wrong_type(message: str) -> Fault:
    found = _FIELD.search(message)
    if found is None:
        return Fault(FaultKind.INVALID_JSON, "The body is expected to be a JSON object.")
    if found[2]:
        return Fault(FaultKind.INVALID_VALUE, f"The field '{found[2]}' is missing.", param=found[2])
    expected = message.partition(" - at")[0].replace("`", "")
    return Fault(FaultKind.INVALID_VALUE, f"'{found[1]}': {expected[0].lower()}{expected[1:]}.", param=found[1])


def _malformed(body: bytes, error: msgspec.DecodeError) -> Fault:
    if body.startswith(_BOM):
        return Fault(FaultKind.INVALID_JSON, "The body begins with a byte order mark; JSON has none.")
    if _SURROGATE.search(body.replace(b"\\\\", b"..")):
        return Fault(FaultKind.INVALID_JSON, "The body holds half of a surrogate pair.")
    return Fault(FaultKind.INVALID_JSON, f"The body is not valid JSON: {error}.")


def _refuse_bad_text(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Fault(FaultKind.INVALID_JSON, f"The body is not valid UTF-8 (byte {error.start}).") from error


def _refuse_many(plain: bytes, opened: int) -> None:
    """Values are the outermost one, those after a comma, and the first of each container that is not empty."""
    if 1 + plain.count(b",") + opened - len(_EMPTY.findall(plain)) > MAX_NODES:
        raise Fault(FaultKind.INVALID_JSON, f"The body holds more than {MAX_NODES} values.")


def _refuse_deep(plain: bytes) -> None:
    brackets = plain.translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):  # each round takes the innermost level off
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise _too_deep()


def _too_deep() -> Fault:
    return Fault(FaultKind.INVALID_JSON, f"The body is nested deeper than {MAX_DEPTH} levels.")


def _refuse_numbers(outline: bytes) -> None:
    for found in _NUMBER.finditer(outline):
        number = found[0]
        is_integer = found[1] is None and found[2] is None
        if is_integer and (len(number) > 20 or not -(2**63) <= int(number) < 2**63):
            raise Fault(FaultKind.INVALID_JSON, "The body holds an integer that does not fit in 64 bits.")
        if not is_integer and (len(number) > _MAX_NUMBER_LENGTH or math.isinf(float(number))):
            raise Fault(FaultKind.INVALID_JSON, "The body holds a number that is out of range.")


def _refuse_duplicates(body: bytes, names: Sequence[bytes]) -> None:
    """Exact, for a body in which a name occurs more than once, at any level, or may be spelt with escapes."""
    if member_spans(body) is not None:
        return
    keys = [key for key, _ in json.loads(body, object_pairs_hook=list)]
    for name in names:
        if keys.count(name.decode()) > 1:
            message = f"The field '{name.decode()}' stands twice at the top level."
            raise Fault(FaultKind.INVALID_JSON, message, param=name.decode())
