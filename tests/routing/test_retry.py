from __future__ import annotations

import pytest

from gateway.protocol.faults import Fault, FaultKind, Side
from gateway.routing.retry import Reading, Signal, read_fault, read_status

ELSEWHERE_AND_FAILURE = Reading(True, Signal.FAILURE)
ELSEWHERE_AND_NEUTRAL = Reading(True, Signal.NEUTRAL)
STOP_AND_SUCCESS = Reading(False, Signal.SUCCESS)


@pytest.mark.parametrize("status", [200, 201, 204, 400, 404, 409, 413, 415, 422, 451])
def test_status_of_answer_or_clients_mistake_stops_as_success(status: int):
    assert read_status(status) == STOP_AND_SUCCESS


@pytest.mark.parametrize("status", [401, 402, 403, 408, 425, 429])
def test_status_of_account_or_load_goes_elsewhere_as_neutral(status: int):
    assert read_status(status) == ELSEWHERE_AND_NEUTRAL


@pytest.mark.parametrize("status", [301, 307, 500, 502, 503, 504, 520, 529])
def test_status_of_broken_worker_goes_elsewhere_as_failure(status: int):
    assert read_status(status) == ELSEWHERE_AND_FAILURE


@pytest.mark.parametrize("status", [501, 505])
def test_status_not_offered_stops_as_neutral(status: int):
    assert read_status(status) == Reading(False, Signal.NEUTRAL)


@pytest.mark.parametrize("kind", ["UPSTREAM_RESET", "UPSTREAM_PROTOCOL", "FIRST_BYTE_TIMEOUT"])
def test_fault_before_answer_goes_elsewhere_and_asks_for_probe(kind: str):
    assert read_fault(Fault(FaultKind[kind], "")) == Reading(True, Signal.FAILURE, wants_probe=True)


def test_refused_connection_goes_elsewhere_for_free():
    expected = Reading(True, Signal.FAILURE, wants_probe=True, is_free=True)
    assert read_fault(Fault(FaultKind.CONNECT_FAILED, "")) == expected


@pytest.mark.parametrize("kind", [FaultKind.IDLE_TIMEOUT, FaultKind.STREAM_INTERRUPTED])
def test_fault_in_mid_answer_stops_as_failure(kind: FaultKind):
    assert read_fault(Fault(kind, "")) == Reading(False, Signal.FAILURE, wants_probe=True)


@pytest.mark.parametrize(
    "kind", [k for k in FaultKind if k.value.side is not Side.UPSTREAM] + [FaultKind.TOTAL_TIMEOUT]
)
def test_fault_that_is_not_workers_stops_as_neutral(kind: FaultKind):
    assert read_fault(Fault(kind, "")) == Reading(False, Signal.NEUTRAL)


@pytest.mark.parametrize("kind", FaultKind)
def test_fault_retryable_by_its_kind_is_read_as_retryable(kind: FaultKind):
    assert read_fault(Fault(kind, "")).is_retryable == kind.value.retryable
