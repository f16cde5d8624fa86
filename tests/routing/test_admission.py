from __future__ import annotations

import pytest

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.admission import Envelope


def test_envelope_last_place_taken_refuses_next():
    envelope = Envelope(max_calls=2, max_bytes=10)
    envelope.enter("chat")
    envelope.enter("chat")
    with pytest.raises(Fault) as refused:
        envelope.enter("chat")
    assert (refused.value.kind, refused.value.retry_after_s, envelope.calls) == (FaultKind.OVERLOADED, 1.0, 2)


def test_envelope_bytes_up_to_budget_fit_and_one_more_does_not():
    envelope = Envelope(max_calls=2, max_bytes=10)
    first, second = envelope.enter("chat"), envelope.enter("chat")
    first.grow(6)
    second.grow(4)
    with pytest.raises(Fault) as refused:
        second.grow(1)
    assert (refused.value.kind, envelope.bytes) == (FaultKind.OVERLOADED, 10)


def test_envelope_lease_released_twice_gives_back_once():
    envelope = Envelope(max_calls=1, max_bytes=10)
    lease = envelope.enter("chat")
    lease.grow(3)
    lease.grow(4)
    lease.release()
    lease.release()
    assert (envelope.calls, envelope.bytes) == (0, 0)
