"""What happened in one call: the value that metrics, log and history are told of, once, at its end."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from gateway.routing.decision import Decision
from gateway.routing.snapshot import HistoryMode, KeyId, PoolId, TeamId, WorkerId


class Outcome(enum.Enum):
    """How a call ended."""

    COMPLETED = "completed"  # a whole answer, with its terminal marker when it was a stream
    REJECTED = "rejected"  # the worker said 4xx: the request was wrong, nothing is wrong with the worker
    REFUSED = "refused"  # we said no: limit, overload, not allowed, bad request
    FAILED = "failed"  # no worker could answer, nothing reached the client but the error
    INTERRUPTED = "interrupted"  # the answer broke after its first byte
    CLIENT_CLOSED = "client_closed"
    ERROR = "error"  # our own fault


class UsageSource(enum.Enum):
    UPSTREAM = "upstream"
    ESTIMATED = "estimated"
    NONE = "none"


@dataclass(slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    source: UsageSource = UsageSource.NONE


@dataclass(slots=True)
class Attempt:
    """One try at one worker. Times are seconds since the call arrived; `outcome` is `ok` or a fault's code.

    `decision` is why it was this worker.
    """

    worker_id: WorkerId
    worker: str
    started_s: float
    pool: str = ""  # the model whose worker it is
    decision: Decision | None = None
    outcome: str = ""
    status: int | None = None
    first_byte_s: float | None = None
    ended_s: float | None = None


@dataclass(slots=True)
class Exchange:
    """One call from its arrival to its end. Bodies are kept only as the pool's history mode says."""

    id: str  # UUIDv7, made at arrival
    request_id: str
    arrived_unix_s: float
    arrived_s: float  # monotonic
    service: str
    revision: int = 0
    team_id: TeamId | None = None
    team: str = ""
    key_id: KeyId | None = None
    key: str = ""
    model: str = ""  # as asked
    pool_id: PoolId | None = None
    pool: str = ""  # the pool's model
    worker_id: WorkerId | None = None
    worker: str = ""
    conversation_id: str = ""
    is_streaming: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    group: str = ""  # `group/<id>` when a group was asked for
    route: dict[str, Any] | None = None  # the group's walk: order, reasons, what became of each member
    outcome: Outcome = Outcome.ERROR
    status: int = 0  # HTTP status sent to the client; 0: none was
    error_code: str = ""
    queued_s: float = 0.0
    ttft_s: float | None = None  # arrival to first byte of the answer
    duration_s: float = 0.0
    usage: Usage = field(default_factory=Usage)
    history: HistoryMode = HistoryMode.OFF
    request_body: bytes = b""
    response_body: bytes = b""  # a stream's events as they were sent
    response_bytes: int = 0  # whole length, also of what was not kept
    is_truncated: bool = False  # response_body lacks its tail
