from __future__ import annotations

import pytest

from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.headers import forward_request, forward_response, parse_authorization, request_id_of


def test_request_headers_go_on_by_allow_list() -> None:
    headers = [
        (b"host", b"gateway"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer sk-client"),
        (b"cookie", b"session=1"),
        (b"x-api-key", b"sk-client"),
        (b"api-key", b"sk-client"),
        (b"x-igw-target-worker", b"w1"),
        (b"x-forwarded-host", b"evil"),
        (b"forwarded", b"for=1.2.3.4"),
        (b"x-real-ip", b"1.2.3.4"),
        (b"accept", b"*/*"),
        (b"user-agent", b"curl/8"),
        (b"accept-encoding", b"br"),
        (b"content-length", b"5"),
        (b"transfer-encoding", b"chunked"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"expect", b"100-continue"),
        (b"openai-organization", b"org"),
        (b"traceparent", b"00-1-2-01"),
        (b"tracestate", b"a=b"),
        (b"idempotency-key", b"k1"),
    ]
    assert forward_request(headers) == (
        b"content-type: application/json\r\naccept: */*\r\nuser-agent: curl/8\r\n"
        b"traceparent: 00-1-2-01\r\ntracestate: a=b\r\nidempotency-key: k1\r\n"
    )


def test_response_headers_go_back_by_allow_list() -> None:
    kept = [
        (b"content-type", b"text/event-stream"),
        (b"content-disposition", b"inline"),
        (b"content-language", b"en"),
        (b"cache-control", b"no-cache"),
        (b"retry-after", b"3"),
        (b"x-should-retry", b"false"),
        (b"openai-processing-ms", b"12"),
    ]
    dropped = [
        (b"set-cookie", b"a=b"),
        (b"server", b"vllm"),
        (b"location", b"http://10.0.0.1/"),
        (b"date", b"now"),
        (b"content-length", b"5"),
        (b"content-encoding", b"identity"),
        (b"x-request-id", b"theirs"),
        (b"via", b"1.1 inner"),
        (b"alt-svc", b"h3"),
    ]
    assert forward_response([*dropped[:4], *kept, *dropped[4:]]) == kept


@pytest.mark.parametrize("place", [0, 1])
def test_header_that_connection_names_goes_no_further(place: int) -> None:
    headers = [(b"traceparent", b"00-1"), (b"accept", b"*/*"), (b"retry-after", b"1"), (b"openai-version", b"1")]
    headers.insert(place * 4, (b"connection", b"keep-alive, Traceparent ,openai-version"))
    assert forward_request(headers) == b"accept: */*\r\n"
    assert forward_response(headers) == [(b"retry-after", b"1")]


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nb", b"a\0b", b"\r"])
def test_value_that_breaks_its_line_goes_no_further(value: bytes) -> None:
    headers = [(b"content-type", value), (b"openai-model", value), (b"cache-control", b"no-store")]
    assert forward_request(headers) == b""
    assert forward_response(headers) == [(b"cache-control", b"no-store")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"req-1._A", "req-1._A"),
        (b"a" * 128, "a" * 128),
        (b"a" * 129, "made"),
        (b"", "made"),
        (b"a b", "made"),
        (b"a\n", "made"),
        (b"\xc3\xa9", "made"),
        (None, "made"),
    ],
)
def test_request_id_is_kept_if_plain(value: bytes | None, expected: str) -> None:
    assert request_id_of(value, lambda: "made") == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        ([(b"authorization", b"Bearer sk-1")], "sk-1"),
        ([(b"authorization", b"bearer   sk-1 ")], "sk-1"),
        ([(b"x-api-key", b" sk-1")], "sk-1"),
        ([(b"api-key", b"sk-1")], "sk-1"),
        ([(b"authorization", b"Bearer sk-1"), (b"x-api-key", b"sk-1"), (b"api-key", b"sk-1")], "sk-1"),
        ([(b"authorization", b"Basic dTpw"), (b"x-api-key", b"sk-1")], "sk-1"),
        ([(b"authorization", b"Basic dTpw")], None),
        ([(b"authorization", b"Bearer"), (b"x-api-key", b"")], None),
        ([(b"authorization", b"sk-1")], None),
        ([(b"x-api-key", "schlüssel".encode())], "schlüssel"),
    ],
)
def test_key_is_found_in_any_of_three_headers(headers: list[tuple[bytes, bytes]], expected: str | None) -> None:
    assert parse_authorization(headers) == expected


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer sk-1"), (b"x-api-key", b"sk-2")],
        [(b"authorization", b"Bearer sk-1"), (b"authorization", b"Bearer sk-2")],
        [(b"api-key", b"\xff")],
    ],
)
def test_key_that_is_not_one_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Fault) as caught:
        parse_authorization(headers)
    assert caught.value.kind is FaultKind.UNAUTHENTICATED
    assert "sk-" not in caught.value.message
