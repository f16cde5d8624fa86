"""The closed set of what can go wrong on the data plane, and its one rendering.

Only `Fault` crosses module boundaries there. A library's exception becomes a Fault where the library is called; a
Fault becomes JSON, an SSE event or a close code here and nowhere else. A message says what was expected and what was
met; it never holds a key, a body or an upstream address.

    Fault
      side client     the caller must change something; never tried again, says nothing about a worker
      side gateway    we refuse or fail: limits, overload, no worker, drain
      side upstream   a worker or vendor failed; `retryable` says whether another worker may be tried before the
                      first byte went to the client

Error objects have the OpenAI shape `{"error": {"message", "type", "param", "code"}}`
(platform.openai.com/docs/guides/error-codes, read 2026-11).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec


class Side(enum.Enum):
    CLIENT = "client"
    GATEWAY = "gateway"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class _Kind:
    status: int
    type: str
    code: str
    side: Side
    retryable: bool = False


class FaultKind(enum.Enum):
    """Every kind of fault with its HTTP status, error type and code."""

    BAD_REQUEST = _Kind(400, "invalid_request_error", "bad_request", Side.CLIENT)
    INVALID_JSON = _Kind(400, "invalid_request_error", "invalid_json", Side.CLIENT)
    INVALID_VALUE = _Kind(400, "invalid_request_error", "invalid_value", Side.CLIENT)
    UNAUTHENTICATED = _Kind(401, "authentication_error", "invalid_api_key", Side.CLIENT)
    FORBIDDEN = _Kind(403, "permission_error", "permission_denied", Side.CLIENT)
    MODEL_FORBIDDEN = _Kind(403, "permission_error", "model_not_allowed", Side.CLIENT)
    NOT_FOUND = _Kind(404, "invalid_request_error", "not_found", Side.CLIENT)
    MODEL_NOT_FOUND = _Kind(404, "invalid_request_error", "model_not_found", Side.CLIENT)
    METHOD_NOT_ALLOWED = _Kind(405, "invalid_request_error", "method_not_allowed", Side.CLIENT)
    BODY_TIMEOUT = _Kind(408, "invalid_request_error", "request_timeout", Side.CLIENT)
    BODY_TOO_LARGE = _Kind(413, "invalid_request_error", "request_too_large", Side.CLIENT)
    UNSUPPORTED_MEDIA = _Kind(415, "invalid_request_error", "unsupported_media_type", Side.CLIENT)
    MISDIRECTED = _Kind(421, "invalid_request_error", "misdirected_request", Side.CLIENT)
    NO_COMPATIBLE_WORKER = _Kind(422, "invalid_request_error", "no_compatible_worker", Side.CLIENT)
    HEAD_TOO_LARGE = _Kind(431, "invalid_request_error", "headers_too_large", Side.CLIENT)

    RATE_LIMITED = _Kind(429, "rate_limit_error", "rate_limit_exceeded", Side.GATEWAY)
    OVERLOADED = _Kind(429, "rate_limit_error", "router_overloaded", Side.GATEWAY)
    INTERNAL = _Kind(500, "server_error", "internal_error", Side.GATEWAY)
    NO_WORKER = _Kind(503, "server_error", "no_worker_available", Side.GATEWAY)
    STARTING = _Kind(503, "server_error", "not_configured", Side.GATEWAY)
    DRAINING = _Kind(503, "server_error", "shutting_down", Side.GATEWAY)
    LOOP = _Kind(508, "server_error", "loop_detected", Side.GATEWAY)

    CONNECT_FAILED = _Kind(502, "upstream_error", "upstream_unreachable", Side.UPSTREAM, retryable=True)
    UPSTREAM_RESET = _Kind(502, "upstream_error", "upstream_disconnected", Side.UPSTREAM, retryable=True)
    UPSTREAM_PROTOCOL = _Kind(502, "upstream_error", "upstream_invalid_response", Side.UPSTREAM, retryable=True)
    UPSTREAM_AUTH = _Kind(502, "upstream_error", "upstream_misconfigured", Side.UPSTREAM, retryable=True)
    UPSTREAM_STATUS = _Kind(502, "upstream_error", "upstream_error", Side.UPSTREAM, retryable=True)
    FIRST_BYTE_TIMEOUT = _Kind(504, "upstream_error", "first_byte_timeout", Side.UPSTREAM, retryable=True)
    IDLE_TIMEOUT = _Kind(504, "upstream_error", "idle_timeout", Side.UPSTREAM)
    TOTAL_TIMEOUT = _Kind(504, "upstream_error", "total_timeout", Side.UPSTREAM)
    ALL_FAILED = _Kind(502, "upstream_error", "all_members_failed", Side.UPSTREAM)
    STREAM_INTERRUPTED = _Kind(502, "upstream_error", "stream_interrupted", Side.UPSTREAM)


class Fault(Exception):
    """One thing that went wrong. `retry_after_s` becomes the `Retry-After` header, rounded up.

    `is_final`: the same request would fail in the same way again, whoever sends it when.
    """

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.is_final = is_final or kind.value.side is Side.CLIENT

    @property
    def status(self) -> int:
        return self.kind.value.status

    @property
    def code(self) -> str:
        return self.kind.value.code

    @property
    def side(self) -> Side:
        return self.kind.value.side

    @property
    def is_retryable(self) -> bool:
        return self.kind.value.retryable


def error_body(fault: Fault) -> bytes:
    """The error as a JSON document."""
    kind = fault.kind.value
    error = {"message": fault.message, "type": kind.type, "param": fault.param, "code": kind.code}
    return msgspec.json.encode({"error": error})


def error_headers(fault: Fault) -> list[tuple[bytes, bytes]]:
    """Headers that go with `error_body`, content-length left out. A refusal says when to come back."""
    headers = [(b"content-type", b"application/json")]
    if fault.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, -int(-fault.retry_after_s // 1))))
    if fault.is_final:
        headers.append((b"x-should-retry", b"false"))  # openai SDKs obey it
    return headers


def error_event(fault: Fault) -> bytes:
    """The error as one SSE event of the chat dialect, on which the openai SDKs raise. No `[DONE]` follows it."""
    return b"data: " + error_body(fault) + b"\n\n"
