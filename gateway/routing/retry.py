"""How an answer or a fault of a worker is read: may another worker be tried, what is the breaker told, is a probe due.

The one classifier. Whether a retry really happens (attempts left, nothing sent to the client) is the pipeline's.

    what                                     elsewhere  breaker   probe
    2xx                                      no         success   no
    4xx about the request                    no         success   no    a client's mistake fails everywhere
    401, 402, 403 (our credential, account)  yes        neutral   no
    408, 425, 429                            yes        neutral   no    busy or early, not broken
    501, 505                                 no         neutral   no    the request asks for what is not offered
    3xx and every other 5xx                  yes        failure   no
    connect                                  yes, free  failure   yes   it cost the worker nothing
    reset, protocol, first byte              yes        failure   yes
    stall or break in mid-answer             no         failure   yes
    our own limits, the client's faults      no         neutral   no
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from gateway.protocol.faults import Fault, FaultKind


class Signal(enum.Enum):
    """What a worker's breaker is told of a call."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Reading:
    """What follows from a worker's answer or fault."""

    is_retryable: bool
    signal: Signal
    wants_probe: bool = False
    is_free: bool = False  # another attempt takes nothing from the retry budget


_GOOD = Reading(False, Signal.SUCCESS)
_BUSY = Reading(True, Signal.NEUTRAL)
_BROKEN = Reading(True, Signal.FAILURE)
_OURS = Reading(False, Signal.NEUTRAL)
_UNREACHED = Reading(True, Signal.FAILURE, wants_probe=True)
_REFUSED = Reading(True, Signal.FAILURE, wants_probe=True, is_free=True)
_LOST = Reading(False, Signal.FAILURE, wants_probe=True)

_STATUSES = dict.fromkeys((401, 402, 403, 408, 425, 429), _BUSY) | dict.fromkeys((501, 505), _OURS)

_FAULTS = {
    FaultKind.CONNECT_FAILED: _REFUSED,
    FaultKind.UPSTREAM_RESET: _UNREACHED,
    FaultKind.UPSTREAM_PROTOCOL: _UNREACHED,
    FaultKind.FIRST_BYTE_TIMEOUT: _UNREACHED,
    FaultKind.UPSTREAM_STATUS: _BROKEN,
    FaultKind.UPSTREAM_AUTH: _BUSY,
    FaultKind.IDLE_TIMEOUT: _LOST,
    FaultKind.STREAM_INTERRUPTED: _LOST,
}


def read_status(status: int) -> Reading:
    """The reading of a final status that a worker answered with."""
    reading = _STATUSES.get(status)
    if reading is None:
        reading = _GOOD if 200 <= status < 300 or 400 <= status < 500 else _BROKEN
    return reading


def read_fault(fault: Fault) -> Reading:
    """The reading of a fault met while talking to a worker, before the first byte went to the client."""
    return _FAULTS.get(fault.kind, _OURS)
