"""Which headers cross the gateway, each way; what of them is ours to read. RFC 9110 section 7.6, by allow-list.

Names arrive in lower case. A name that the Connection header lists goes no further even if it is allowed, and a value
with CR, LF or NUL goes nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from gateway.protocol.faults import Fault, FaultKind

Headers = Iterable[tuple[bytes, bytes]]

_REQUEST = frozenset((b"content-type", b"accept", b"user-agent", b"traceparent", b"tracestate", b"idempotency-key"))
_RESPONSE = frozenset(
    (
        b"content-type",
        b"content-disposition",
        b"content-language",
        b"cache-control",
        b"retry-after",
        b"x-should-retry",
    )
)
_KEY_HEADERS = (b"authorization", b"x-api-key", b"api-key")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_BREAKS_LINE = re.compile(rb"[\r\n\0]")


def forward_request(headers: Headers) -> bytes:
    """What of a client's headers a worker gets, as header lines."""
    return b"".join([b"%b: %b\r\n" % header for header in _allowed(headers, _REQUEST, ())])


def forward_response(headers: Headers) -> list[tuple[bytes, bytes]]:
    """What of a worker's headers the client gets; lengths, cookies and what names the worker are not among it."""
    return _allowed(headers, _RESPONSE, (b"openai-",))


def request_id_of(value: bytes | None, make: Callable[[], str]) -> str:
    """The client's own request id if it is short and plain, else a new one."""
    return value.decode() if value is not None and _REQUEST_ID.fullmatch(value) else make()


def parse_authorization(headers: Headers) -> str | None:
    """The key that a request carries as a bearer token, in `x-api-key` or in `api-key`; None if it carries none.

    Two different keys are a Fault UNAUTHENTICATED: which one counts is not ours to guess.
    """
    found = {key for name, value in headers if name in _KEY_HEADERS and (key := _key(name, value))}
    if len(found) > 1:
        raise Fault(FaultKind.UNAUTHENTICATED, "The request carries two different API keys; one is expected.")
    try:
        return found.pop().decode() if found else None
    except UnicodeDecodeError as error:
        raise Fault(FaultKind.UNAUTHENTICATED, "The API key is expected as UTF-8 text.") from error


def _key(name: bytes, value: bytes) -> bytes:
    if name != b"authorization":
        return value.strip()
    scheme, _, key = value.strip().partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


def _allowed(headers: Headers, names: Collection[bytes], prefixes: tuple[bytes, ...]) -> list[tuple[bytes, bytes]]:
    """Headers in their order; names that begin with one of `prefixes` are allowed too."""
    kept = []
    hop_by_hop: set[bytes] = set()
    for name, value in headers:
        if name in names or name.startswith(prefixes):
            if not _BREAKS_LINE.search(value):
                kept.append((name, value))
        elif name == b"connection":
            hop_by_hop.update(token.strip().lower() for token in value.split(b","))
    return [header for header in kept if header[0] not in hop_by_hop] if hop_by_hop else kept
