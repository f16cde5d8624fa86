"""Field case FC-10 as a table, and what is made of each answer."""

from __future__ import annotations

import pytest

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.classes import Refusal, read_failure, read_refusal
from gateway.routing.rest import RestReason
from gateway.routing.snapshot import ErrorClasses

DEFAULT, STRICT = ErrorClasses.DEFAULT, ErrorClasses.JACKDAW_STRICT
CREDIT = b'{"error":{"message":"Your credit balance is too low to access the API."}}'
QUOTA = b'{"error":{"code":"insufficient_quota"}}'
POLICY = b'{"error":{"code":"content_policy_violation"}}'


@pytest.mark.parametrize(
    ("status", "body", "default", "strict", "rest"),
    [
        *((status, b"", True, True, None) for status in (500, 502, 503, 504, 529)),
        *((status, b"", True, False, None) for status in (408, 409, 425)),
        *((status, b"", False, False, None) for status in (400, 404, 413, 415, 422)),
        *((status, b"", True, False, RestReason.CREDENTIAL) for status in (401, 403)),
        (402, b"", True, False, RestReason.CREDIT),
        (429, b"", True, True, RestReason.RATE_LIMIT),
        (429, QUOTA, True, True, RestReason.QUOTA),
        (400, CREDIT, True, False, RestReason.CREDIT),
        (400, POLICY, False, False, None),
        (403, POLICY, False, False, None),
    ],
)
def test_answer_lets_the_next_member_be_asked(
    status: int, body: bytes, default: bool, strict: bool, rest: RestReason | None
):
    by_default, strictly = read_refusal(DEFAULT, status, body, b"{}"), read_refusal(STRICT, status, body, b"{}")
    assert (by_default.moves_on, by_default.rest) == (default, rest)
    assert (strictly.moves_on, strictly.rest) == (strict, rest)


@pytest.mark.parametrize(
    ("status", "body", "is_passing"),
    [(500, b"", False), (503, b"", True), (429, b"", True), (429, QUOTA, False), (400, b"", False), (401, b"", False)],
)
def test_answer_that_may_be_another_one_later(status: int, body: bytes, is_passing: bool):
    assert read_refusal(DEFAULT, status, body, b"{}").is_passing is is_passing


@pytest.mark.parametrize(
    ("kind", "reading"),
    [
        (FaultKind.CONNECT_FAILED, Refusal(True, None, True)),
        (FaultKind.FIRST_BYTE_TIMEOUT, Refusal(True, None, True)),
        (FaultKind.UPSTREAM_PROTOCOL, Refusal(True)),
        (FaultKind.NO_WORKER, Refusal(True, None, True)),
        (FaultKind.OVERLOADED, Refusal(True, None, True)),
        (FaultKind.NO_COMPATIBLE_WORKER, Refusal(True)),
        (FaultKind.INVALID_JSON, Refusal(False)),
        (FaultKind.TOTAL_TIMEOUT, Refusal(False)),
    ],
)
def test_fault_lets_the_next_member_be_asked(kind: FaultKind, reading: Refusal):
    assert read_failure(Fault(kind, "no")) == reading


@pytest.mark.parametrize("status", [404, 413, 415, 422])
def test_account_trouble_is_not_read_into_what_is_the_callers_mistake(status: int):
    assert read_refusal(DEFAULT, status, CREDIT, b"{}") == Refusal(False)


@pytest.mark.parametrize("body", [CREDIT, QUOTA, POLICY])
def test_words_that_the_worker_only_repeats_from_the_request_say_nothing(body: bytes):
    assert read_refusal(DEFAULT, 400, body, b'{"user":"' + body.upper() + b'"}') == Refusal(False)
