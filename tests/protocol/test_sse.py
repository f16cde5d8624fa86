"""Where events end, whatever the line ends and the cuts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.sse import MAX_EVENT_BYTES, Framer, data_of, events, with_data

TEXTS = st.lists(st.sampled_from([b"data: a", b"data:b", b": c", b"\n", b"\r", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85"]))


def test_piece_that_ends_with_an_event_is_the_same_object() -> None:
    framer = Framer()
    for piece in (b"data: a\n\n", b": c\n\ndata: b\n\n", b"data: a\r\n\r\n"):
        assert framer.feed(piece) is piece
    assert framer.rest() == b""


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_event_is_held_until_its_empty_line(end: bytes) -> None:
    framer = Framer()
    stream = b"data: a" + end + end + b"data: b" + end + end + b":"
    out = [framer.feed(stream[i : i + 1]) for i in range(len(stream))]
    assert [piece for piece in out if piece] == [b"data: a" + end + end, b"data: b" + end + end]
    assert framer.rest() == b":"


@given(TEXTS, st.data())
def test_any_cut_gives_the_same_events(texts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(texts)
    framer, out, at = Framer(), b"", 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        piece = framer.feed(stream[at : at + size])
        assert not piece or re.search(rb"(\n|\r\n|\r)(\n|\r\n|\r)\Z", piece)
        out += piece
        at += size
    whole = Framer()
    expected = whole.feed(stream)
    rest = framer.rest()
    assert out + rest == stream
    assert list(events(out + rest)) == list(events(expected + whole.rest()))


def test_event_at_the_limit_passes_and_one_byte_more_is_refused() -> None:
    event = b"data: " + b"x" * (MAX_EVENT_BYTES - 8) + b"\n\n"
    assert Framer().feed(event) is event
    for pieces in ([b"data: x" + event[6:]], [event[:9], b"x" + event[9:]], [b"x" * MAX_EVENT_BYTES, b"x\n\n"]):
        framer = Framer()
        with pytest.raises(Fault) as caught:
            list(map(framer.feed, pieces))
        assert caught.value.kind is FaultKind.STREAM_INTERRUPTED


def test_large_read_of_small_events_passes() -> None:
    piece = b"data: x\n\n" * (MAX_EVENT_BYTES // 8)
    assert Framer().feed(piece) is piece


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data:  a \n\n", b" a "),
        (b"data: a\r\nid: 7\r\ndata: b\r\n\r\n", b"a\nb"),
        (b"data: a\rdata\rdata: b\r\r", b"a\n\nb"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b"\n\ndata: a\n\n", b"a"),
        (b"data: a\xe2\x80\xa8b\xc2\x85c\n\n", b"a\xe2\x80\xa8b\xc2\x85c"),
        (b"data\n\n", b""),
        (b": data: a\n\n", None),
        (b"database: a\n\n", None),
        (b"\n", None),
        (b"", None),
    ],
)
def test_data_of_an_event(event: bytes, data: bytes | None) -> None:
    assert data_of(event) == data


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"data: a\n\n", b"data: N\n\n"),
        (b"data:a\r\n\r\n", b"data:N\r\n\r\n"),
        (b"\xef\xbb\xbfid: 1\ndata: a\ndata: b\nretry: 5\n\n", b"\xef\xbb\xbfid: 1\ndata: N\nretry: 5\n\n"),
        (b": c\rdata: a\r\r", b": c\rdata: N\r\r"),
    ],
)
def test_other_data_leaves_the_other_lines(event: bytes, expected: bytes) -> None:
    assert with_data(event, b"N") == expected
