from __future__ import annotations

import json

import pytest

from gateway.protocol.faults import Fault, FaultKind, Side, error_body, error_event, error_headers


@pytest.mark.parametrize("kind", FaultKind)
def test_kind_has_a_status_of_its_side(kind: FaultKind) -> None:
    fault = Fault(kind, "m")
    statuses = {Side.CLIENT: range(400, 500), Side.GATEWAY: range(429, 600), Side.UPSTREAM: range(502, 505)}
    assert fault.status in statuses[fault.side]
    assert not fault.is_retryable or fault.side is Side.UPSTREAM


def test_codes_are_distinct() -> None:
    codes = [kind.value.code for kind in FaultKind]
    assert len(set(codes)) == len(codes)


def test_body_has_the_openai_shape() -> None:
    fault = Fault(FaultKind.MODEL_NOT_FOUND, 'The model "é\n" does not exist.', param="model")
    expected = {
        "message": 'The model "é\n" does not exist.',
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert json.loads(error_body(fault)) == {"error": expected}
    assert str(fault) == fault.message


def test_event_is_one_line_of_data_and_an_empty_one() -> None:
    fault = Fault(FaultKind.STREAM_INTERRUPTED, "a\r\n\r\nb")
    event = error_event(fault)
    assert event == b"data: " + error_body(fault) + b"\n\n"
    assert event.count(b"\n") == 2
    assert b"\r" not in event


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(FaultKind.RATE_LIMITED, "m", retry_after_s=1.2), [(b"retry-after", b"2")]),
        (Fault(FaultKind.RATE_LIMITED, "m", retry_after_s=3.0), [(b"retry-after", b"3")]),
        (Fault(FaultKind.OVERLOADED, "m", retry_after_s=0.0), [(b"retry-after", b"1")]),
        (Fault(FaultKind.NO_WORKER, "m"), []),
        (Fault(FaultKind.BAD_REQUEST, "m"), [(b"x-should-retry", b"false")]),
        (Fault(FaultKind.CONNECT_FAILED, "m"), []),
    ],
)
def test_headers_say_whether_and_when_to_come_back(fault: Fault, expected: list[tuple[bytes, bytes]]) -> None:
    assert error_headers(fault) == [(b"content-type", b"application/json"), *expected]
