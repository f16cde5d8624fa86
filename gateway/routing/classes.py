"""Which error of a member lets the next one of a group be asked, and whether the worker rests for it.

    answer                                         `default`              `jackdaw-strict`
    no connection, timeout, 429, 5xx               next                   next
    408, 409, 425                                  next                   stop
    401, 403 of the vendor                         next; credential       stop; credential
    402, or a 400, 403 or 429 that tells of credit  next; credit          stop (429: next); credit
    one of these that tells of a used-up quota      next; quota           stop (429: next); quota
    429                                            next; rate limit       next; rate limit
    refusal of the content                         stop                   stop
    400, 404, 413, 415, 422 and other 4xx          stop                   stop

Stop means that the client gets the answer as it is: another model would say the same. What a caller's mistake brings
on never makes anybody rest; account trouble that is dressed up as a 400 is ours and does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.rest import RestReason
from gateway.routing.snapshot import ErrorClasses

# What vendors write of account trouble: OpenAI's `insufficient_quota` and `billing_hard_limit_reached`, Anthropic's
# "credit balance is too low", DeepSeek's and others' "insufficient balance" (error pages of the vendors, read 2026-11).
_CREDIT = re.compile(
    rb"credit balance is too low|insufficient[ _](?:balance|credits?|funds)|billing_(?:hard_limit|not_active)|"
    rb"payment required|account is not active",
    re.IGNORECASE,
)
_QUOTA = re.compile(rb"insufficient_quota|exceeded your current quota|quota[ _]exceeded|usage limit", re.IGNORECASE)
_CONTENT = re.compile(rb"content_policy|content_filter|content management policy|safety system", re.IGNORECASE)
_LOOKED_AT = 4096  # bytes; errors of this kind are short

_TELLING = frozenset((400, 402, 403, 429))  # statuses under which vendors tell of the account

_ELSEWHERE = frozenset((401, 402, 403, 408, 409, 425))
_PASSING = frozenset((408, 409, 425, 429, 502, 503, 504, 529))  # the same request may well succeed a moment later
_PASSING_FAULTS = frozenset(
    (
        FaultKind.CONNECT_FAILED,
        FaultKind.UPSTREAM_RESET,
        FaultKind.FIRST_BYTE_TIMEOUT,
        FaultKind.RATE_LIMITED,
        FaultKind.OVERLOADED,
        FaultKind.NO_WORKER,
    )
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What follows from a member's error. `is_passing`: the same request may succeed later."""

    moves_on: bool
    rest: RestReason | None = None
    is_passing: bool = False


def read_refusal(classes: ErrorClasses, status: int, body: bytes, asked: bytes) -> Refusal:
    """The reading of an error status that a worker answered with. `asked` is the request's body: what a worker merely
    repeats of it says nothing, or a caller could send everybody's worker to rest.
    """
    if status >= 500 or status < 400:
        return Refusal(True, None, status in _PASSING)
    head = body[:_LOOKED_AT] if status in _TELLING else b""
    if _says(_CONTENT, head, asked):
        return Refusal(False)
    rest = _rest(status, head, asked)
    if status == 429:
        moves_on = True
    elif classes is ErrorClasses.JACKDAW_STRICT:
        moves_on = False
    else:
        moves_on = status in _ELSEWHERE or rest is not None
    return Refusal(moves_on, rest, status in _PASSING and rest in (None, RestReason.RATE_LIMIT))


def read_failure(fault: Fault) -> Refusal:
    """The reading of a fault that ended a member's turn before anything was sent. The caller's own faults stop."""
    is_ours = fault.kind in (FaultKind.RATE_LIMITED, FaultKind.OVERLOADED, FaultKind.NO_WORKER)
    moves_on = is_ours or fault.is_retryable or fault.kind is FaultKind.NO_COMPATIBLE_WORKER
    return Refusal(moves_on, None, fault.kind in _PASSING_FAULTS)


def _says(pattern: re.Pattern[bytes], head: bytes, asked: bytes) -> bool:
    found = pattern.search(head)
    return found is not None and found[0].lower() not in asked.lower()


def _rest(status: int, head: bytes, asked: bytes) -> RestReason | None:
    if status == 402 or _says(_CREDIT, head, asked):
        return RestReason.CREDIT
    if _says(_QUOTA, head, asked):
        return RestReason.QUOTA
    if status == 429:
        return RestReason.RATE_LIMIT
    return RestReason.CREDENTIAL if status in (401, 403) else None
