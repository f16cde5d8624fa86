"""The first line: what is refused before any application code runs, and how a lost client is noticed.

`GuardedProtocol` is uvicorn's HTTP/1.1 protocol with what uvicorn lacks (reference: RFC 9112; the numbers are those of
common proxies):

    head over 32 KB or 100 fields                    431
    no, two or malformed Host (RFC 9112, 3.2)         400; not one of ours 421
    Transfer-Encoding other than chunked, or in 1.0   400 (Content-Length beside it: the parser refuses)
    control bytes and NEL in a value                  400
    methods outside the list                          405
    foreign absolute-form target                      421
    a head that takes longer than `head_timeout_s`    408, then closed (`sweep`)

Request trailers are dropped: the parser reports them as headers, after the application has its list. Every refusal is
the data plane's JSON error and closes the connection, for nothing after a doubtful head can be trusted.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.pipeline.client import Client, Ended
from gateway.protocol.faults import Fault, FaultKind, error_body, error_headers

_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
_CONTROL_CHARACTER = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """What a head may be. `hosts` are lower-case names without port; empty allows every name."""

    hosts: frozenset[str] = frozenset()
    head_bytes: int = 32 * 1024
    head_fields: int = 100
    target_bytes: int = 8 * 1024
    head_timeout_s: float = 10.0


class Connection:
    """What a call may ask of its connection: to be told when the client is gone, and to be closed."""

    __slots__ = ("_transport", "client")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.client: Client | None = None  # the call that runs now

    def close(self) -> None:
        """Close after what was written is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once; a client that does not read would keep `close` waiting."""
        self._transport.abort()

    def lost(self) -> None:
        if self.client is not None:
            self.client.cancel(Ended.CLIENT_GONE)


class GuardedProtocol(HttpToolsProtocol):
    """One client connection. `limits` is set once, before the server starts."""

    __slots__ = ("connection", "head_bytes", "head_since_s", "is_in_head", "refusal")
    limits: ClassVar[GuardLimits] = GuardLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connection = Connection(transport)
        self.refusal: Fault | None = None
        self.head_bytes = 0
        self.is_in_head = True  # a connection that never sends anything is a slow head too
        self.head_since_s = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.connection.lost()

    def data_received(self, data: bytes) -> None:
        if self.is_in_head:
            self.head_bytes += len(data)
        elif self.cycle is None or self.cycle.response_complete:
            self.head_bytes = len(data)
        if self.refusal is not None:
            return  # being closed: what still comes in is not read
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        except httptools.HttpParserError:
            self.refuse(self.refusal or Fault(FaultKind.BAD_REQUEST, "The request is not valid HTTP/1.1."))
        else:
            if self.is_in_head and self.head_bytes > self.limits.head_bytes:
                self.refuse(_too_large(self.limits))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["igw"] = self.connection  # type: ignore[typeddict-unknown-key]
        self.is_in_head = True
        self.head_since_s = self.loop.time()

    def on_headers_complete(self) -> None:
        self.is_in_head = False
        fault = check_head(
            self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers, self.limits
        )
        if fault is not None:
            self.refusal = fault
            raise fault
        if not self.url.startswith((b"/", b"*")):
            self.url = b"/" + self.url.split(b"/", 3)[3] if self.url.count(b"/") > 2 else b"/"
        super().on_headers_complete()
        self.scope["igw.answer"] = self.cycle  # type: ignore[typeddict-unknown-key]
        self.head_bytes = 0
        if not self.parser.should_upgrade():
            self.headers = []  # trailers land here, not in the list that the application holds

    def refuse(self, fault: Fault) -> None:
        """Answer with the fault and close. Beside a running answer only the closing is possible."""
        self.refusal = fault
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = error_body(fault)
            head = [(b"content-length", b"%d" % len(body)), (b"connection", b"close"), *error_headers(fault)]
            head.append((b"x-request-id", uuid.uuid4().hex.encode()))
            lines = b"".join(b"%b: %b\r\n" % pair for pair in head)
            self.transport.write(STATUS_LINE[fault.status] + lines + b"\r\n" + body)
            if cycle is not None and not cycle.response_complete:  # its body turned out to be bad: nobody waits for it
                cycle.disconnected = True
                cycle.message_event.set()
                self.connection.lost()
        self.transport.close()


def sweep(connections: Iterable[Any], now_s: float) -> None:
    """Close connections whose head is overdue. `connections` are the server's; websockets among them are skipped."""
    for connection in list(connections):
        if isinstance(connection, GuardedProtocol) and connection.is_in_head:
            idle_after_answer = connection.timeout_keep_alive_task is not None
            if not idle_after_answer and now_s - connection.head_since_s > connection.limits.head_timeout_s:
                connection.refuse(Fault(FaultKind.BODY_TIMEOUT, "The request's head did not arrive in time."))


def check_head(
    method: bytes, target: bytes, version: str, headers: list[tuple[bytes, bytes]], limits: GuardLimits
) -> Fault | None:
    """What is wrong with a request's head, if anything. Header names are lower-case."""
    if len(headers) > limits.head_fields or len(target) > limits.target_bytes:
        return _too_large(limits)
    if method not in _METHODS:
        return Fault(FaultKind.METHOD_NOT_ALLOWED, "This method is not supported.")
    if version not in ("1.1", "1.0"):
        return Fault(FaultKind.BAD_REQUEST, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    host: bytes | None = None
    size = len(target)
    for name, value in headers:
        size += len(name) + len(value) + 4
        if name == b"host":
            if host is not None:
                return Fault(FaultKind.BAD_REQUEST, "Exactly one Host header is expected.")
            host = value
        elif name == b"transfer-encoding" and (value.strip().lower() != b"chunked" or version == "1.0"):
            return Fault(FaultKind.BAD_REQUEST, "The only Transfer-Encoding supported is chunked, in HTTP/1.1.")
        if not value.isascii() and not _is_clean(value):
            return Fault(FaultKind.BAD_REQUEST, "A header value holds control characters or is not UTF-8.")
    if size > limits.head_bytes:
        return _too_large(limits)
    return _check_host(host, target, version, limits.hosts)


def _check_host(host: bytes | None, target: bytes, version: str, hosts: frozenset[str]) -> Fault | None:
    if host is None:
        if version == "1.0":
            return None
        return Fault(FaultKind.BAD_REQUEST, "Exactly one Host header is expected.")
    if not _HOST.fullmatch(host):
        return Fault(FaultKind.BAD_REQUEST, "The Host header is not a host name with an optional port.")
    if b"#" in target:
        return Fault(FaultKind.BAD_REQUEST, "A request target has no fragment.")
    if not target.startswith((b"/", b"*")):
        scheme, _, rest = target.partition(b"://")
        if scheme.lower() not in (b"http", b"https") or rest.split(b"/", 1)[0].lower() != host.lower():
            return Fault(FaultKind.MISDIRECTED, "The request is addressed to another host.")
    if hosts and host.rsplit(b":", 1)[0].decode().lower() not in hosts and host.decode().lower() not in hosts:
        return Fault(FaultKind.MISDIRECTED, "This host name is not served here.")
    return None


def _is_clean(value: bytes) -> bool:
    try:
        return not _CONTROL_CHARACTER.search(value.decode())
    except UnicodeDecodeError:
        return False


def _too_large(limits: GuardLimits) -> Fault:
    return Fault(
        FaultKind.HEAD_TOO_LARGE,
        f"A request's head may have {limits.head_fields} fields and {limits.head_bytes // 1024} KB.",
    )
