"""What is accepted as an HTTP/1.1 answer: a strict reading of bytes into status, headers and body. No I/O.

The parser's leniencies stay off (content-length with transfer-encoding, two content-lengths, bare LF, folded headers
and the like are faults), and on top of it: HTTP/1.0 and 1.1 only, status 100 to 599, no 101, other 1xx skipped,
`chunked` as the only transfer coding, 64 KiB and 100 headers of head, 64 KiB without a body byte between two (trailers,
chunk extensions, 1xx), nothing after the end.
"""

from __future__ import annotations

import httptools

from gateway.protocol.faults import Fault, FaultKind

HEAD_LIMIT_BYTES = 65_536
HEADERS_LIMIT = 100


class Framing:
    """One answer as far as it was read. The body collects in pieces until it is taken."""

    __slots__ = (
        "_is_head",
        "_parser",
        "_pieces",
        "_quiet",
        "_size",
        "has_body",
        "headers",
        "is_complete",
        "is_keep_alive",
        "reads_to_eof",
        "status",
    )

    def __init__(self, *, is_head: bool) -> None:
        self.status = 0  # until the head is complete
        self.headers: list[tuple[bytes, bytes]] = []  # names in lower case
        self.is_complete = False
        self.is_keep_alive = False
        self.reads_to_eof = False  # no length was given: the end of the connection is the end of the answer
        self.has_body = False  # a first byte of it came
        self._is_head = is_head
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._quiet = 0  # bytes since the last body byte
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def is_untouched(self) -> bool:
        """Whether not a byte came."""
        return not (self._quiet or self.status)

    @property
    def body(self) -> bytes:
        """What was gathered and not handed on yet: all of it, when a gathered answer is complete."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def take(self) -> bytes:
        """Hand over the pieces, joined."""
        piece = self.body
        self._pieces.clear()
        self._size = 0
        return piece

    def parse(self, data: bytes) -> None:
        """Read on. Raises UPSTREAM_PROTOCOL; then the answer is not to be read further."""
        assert self._parser is not None
        if self.is_untouched and data[0] != 0x48:  # the parser also takes RTSP, ICE and blank lines
            raise invalid("it does not begin with HTTP")
        self._quiet += len(data)
        size_before = self._size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise invalid(_reason(error)) from error
        if self._size > size_before:
            self._quiet = 0
            self.has_body = True
        elif self._quiet > HEAD_LIMIT_BYTES:
            raise invalid(f"more than {HEAD_LIMIT_BYTES} bytes came without a byte of the body")

    def end_parsing(self) -> None:
        """Let go of the parser, which holds on to this object."""
        self._parser = None

    # The parser's callbacks

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _Refused("nothing was expected after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer: dropped
        if len(self.headers) >= HEADERS_LIMIT:
            raise _Refused(f"more than {HEADERS_LIMIT} headers came")
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        if parser.get_http_version() not in ("1.1", "1.0") or not 100 <= status <= 599 or status == 101:
            raise _Refused("a final status of HTTP/1.1 was expected")
        if self._quiet > HEAD_LIMIT_BYTES and sum(len(n) + len(v) + 4 for n, v in self.headers) > HEAD_LIMIT_BYTES:
            raise _Refused(f"a head of more than {HEAD_LIMIT_BYTES} bytes came")
        if status < 200:
            self.headers = []
            return
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
            raise _Refused("no transfer coding but chunked was expected")
        self.status = status
        self.is_keep_alive = parser.should_keep_alive()
        if self._is_head:
            self.is_complete = True
        elif not self.is_keep_alive and not codings and status not in (204, 304):
            self.reads_to_eof = all(name != b"content-length" for name, _ in self.headers)

    def on_body(self, piece: bytes) -> None:
        if self.is_complete:
            raise _Refused("no body was expected in an answer to HEAD")
        self._pieces.append(piece)
        self._size += len(piece)

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete = True


class _Refused(Exception):
    """What the parser would let pass and we do not."""


def _reason(error: httptools.HttpParserError) -> str:
    ours = error.__context__
    return str(ours) if isinstance(ours, _Refused) else str(error)  # the parser's own reasons are constants


def invalid(reason: str) -> Fault:
    return Fault(FaultKind.UPSTREAM_PROTOCOL, f"the upstream's answer is not valid HTTP: {reason}")
