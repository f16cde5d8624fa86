"""Server-sent events as bytes: where one ends, what data it carries (html.spec.whatwg.org, 9.2.6, read 2026-11).

Lines end in LF, CRLF or CR and in nothing else; an event ends at the first empty line. A CR that ends a read waits for
the next byte, which may be its LF. Nothing is decoded, and no event is copied unless it arrived in parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.protocol.faults import Fault, FaultKind

MAX_EVENT_BYTES = 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LINE = re.compile(rb"([^\r\n]*+)(\r\n|\n|\r|\Z)")


class Framer:
    """Cuts a stream of pieces so that only whole events go on; keeps the beginning of the one that is still coming."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> bytes:
        """The events that are complete now: `piece` itself where it ends with one and nothing was held.

        Raises Fault STREAM_INTERRUPTED for an event of more than MAX_EVENT_BYTES.
        """
        held = self._held
        if not held:
            if piece.endswith((b"\n\n", b"\r\n\r\n")):
                whole = piece
            else:
                end = last_event_end(piece, 0)
                whole = piece[:end]
                held += piece[end:]
        else:
            known = len(held)
            held += piece
            end = last_event_end(held, max(0, known - 2))
            whole = bytes(held[:end])
            del held[:end]
        if len(held) > MAX_EVENT_BYTES or len(whole) > MAX_EVENT_BYTES:
            _refuse_large(whole, held)
        return whole

    def rest(self) -> bytes:
        """What is still held, at the end of the stream; afterwards nothing is."""
        rest = bytes(self._held)
        self._held.clear()
        return rest


def events(whole: bytes) -> Iterator[bytes]:
    """Each event with the empty line that ends it; whatever follows the last of them comes as one more."""
    at = 0
    while at < len(whole):
        end = event_end(whole, at)
        yield whole[at:end]
        at = end


def event_end(whole: bytes, start: int) -> int:
    """Where the event that begins at `start` ends, its empty line included; the end if that is missing."""
    if b"\r" not in whole:  # a search for two bytes is ten times faster than for a pattern
        return at + 2 if (at := whole.find(b"\n\n", start)) >= 0 else len(whole)
    found = _EVENT_END.search(whole, start)
    return found.end() if found else len(whole)


def data_of(event: bytes) -> bytes | None:
    """The data of an event, its lines joined by LF; None if it has no data line (a comment, an empty line)."""
    lines = [line for line in _LINE_END.split(event.removeprefix(_BOM)) if _is_data(line)]
    return b"\n".join([line[5:].removeprefix(b" ") for line in lines]) if lines else None


def with_data(event: bytes, data: bytes) -> bytes:
    """The event with other data, which is JSON; every other line stays as it is."""
    bom = _BOM if event.startswith(_BOM) else b""
    out = [bom]
    is_written = False
    for line, end in _LINE.findall(event[len(bom) :]):
        if not _is_data(line):
            out.append(line + end)
        elif not is_written:
            is_written = True
            space = b" " if line.startswith(b"data: ") else b""
            out.append(b"data:" + space + data.replace(b"\n", b" ") + end)  # a raw LF in JSON is white space
    return b"".join(out)


def _is_data(line: bytes) -> bool:
    return line.startswith(b"data:") or line == b"data"


def last_event_end(data: bytes | bytearray, start: int) -> int:
    """Where the last whole event ends; 0 if none does. An empty line shows as LF LF, LF CR or CR CR."""
    end = len(data) - 1 if data.endswith(b"\r") else len(data)
    at = max(data.rfind(b"\n\n", start, end), data.rfind(b"\n\r", start, end), data.rfind(b"\r\r", start, end)) + 2
    if at == 1:
        return 0
    return at + 1 if data[at - 1] == _CR and data[at] == _LF else at


def _refuse_large(whole: bytes, held: bytearray) -> None:
    if len(held) > MAX_EVENT_BYTES or any(len(event) > MAX_EVENT_BYTES for event in events(whole)):
        message = f"The worker sent an event of more than {MAX_EVENT_BYTES} bytes."
        raise Fault(FaultKind.STREAM_INTERRUPTED, message)
