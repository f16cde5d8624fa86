"""A finished exchange as a row of PostgreSQL's COPY in its binary format (documentation of COPY, "Binary Format").

Encoding by hand is on every call's path and three times cheaper than handing values to a driver. A row is one object,
so that a call leaves one behind and not its parts. Bodies stay the bytes that they are; texts lose what a text column
cannot hold.
"""

from __future__ import annotations

import functools
import struct
import uuid

import msgspec

from gateway.pipeline.exchange import Exchange
from gateway.routing.snapshot import HistoryMode

# In the order of the encoded row.
COLUMNS = (
    *("id", "created_at", "status", "is_streaming", "is_truncated", "queued_s", "duration_s", "revision"),
    *("input_tokens", "output_tokens", "cached_tokens", "response_bytes", "ttft_s"),
    *("team_id", "key_id", "pool_id", "team", "key", "service", "pool", "worker_id", "worker"),
    *("outcome", "error_code", "usage_source"),
    *("request_id", "model", "conversation_id", "attempts", "route", "request_body", "response_body"),
)
COPY_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
COPY_TAIL = b"\xff\xff"

_TEXT_LIMIT = 1000  # characters; far above what a configuration or an honest client sends
_LARGEST = 2**63 - 1
_POSTGRES_EPOCH_S = 946_684_800  # 2000-01-01
_NULL = b"\xff\xff\xff\xff"
_HEAD = struct.Struct("!hi16siqiii?i?ididiqiqiqiqiq")  # number of columns, then the first twelve, each after its length
_LENGTH = struct.Struct("!i").pack
_NUMBER = struct.Struct("!iq").pack
_SECONDS = struct.Struct("!id").pack


def encode(exchange: Exchange) -> bytes:
    """The row for COLUMNS. Nothing that a client or a worker sends makes it fail."""
    usage = exchange.usage
    attempts = msgspec.json.encode(exchange.attempts)
    parts = [
        _HEAD.pack(
            *(len(COLUMNS), 16, bytes.fromhex(exchange.id.replace("-", ""))),
            *(8, round((exchange.arrived_unix_s - _POSTGRES_EPOCH_S) * 1e6)),
            *(4, exchange.status, 1, exchange.is_streaming, 1, exchange.is_truncated),
            *(8, exchange.queued_s, 8, exchange.duration_s, 8, exchange.revision),
            *(8, _count(usage.input_tokens), 8, _count(usage.output_tokens), 8, _count(usage.cached_tokens)),
            *(8, exchange.response_bytes),
        ),
        _NULL if exchange.ttft_s is None else _SECONDS(8, exchange.ttft_s),
        _configured(
            *(exchange.team_id, exchange.key_id, exchange.pool_id, exchange.team, exchange.key, exchange.service),
            *(exchange.pool, exchange.worker_id or "", exchange.worker),
            *(exchange.outcome.value, exchange.error_code, usage.source.value),
        ),
        _text(exchange.request_id),
        _text(exchange.model),
        _text(exchange.conversation_id),
        _json(attempts),
        _NULL if exchange.route is None else _json(msgspec.json.encode(exchange.route)),
    ]
    if exchange.history is HistoryMode.METADATA:
        parts += (_NULL, _NULL)
    else:
        request, response = exchange.request_body, exchange.response_body
        parts += (_LENGTH(len(request)), request, _LENGTH(len(response)), response)
    return b"".join(parts)


def exchange_id(row: bytes) -> str:
    """The id of an encoded row."""
    return str(uuid.UUID(bytes=row[6:22]))


@functools.lru_cache(4096)
def _configured(team_id: int | None, key_id: int | None, pool_id: int | None, *texts: str) -> bytes:
    """The columns whose values come from the configuration or a closed set: a few combinations, again and again."""
    numbers = [_NULL if number is None else _NUMBER(8, number) for number in (team_id, key_id, pool_id)]
    return b"".join([*numbers, *map(_text, texts)])


def _json(data: bytes) -> bytes:
    """A jsonb value; its binary form begins with a version."""
    return b"%b\x01%b" % (_LENGTH(len(data) + 1), data)


def _count(number: int) -> int:
    """A count that others made, as a bigint."""
    return number if 0 <= number <= _LARGEST else max(0, min(number, _LARGEST))


def _text(text: str) -> bytes:
    """What a text column takes after its length: no NUL, no lone surrogate, not endless."""
    data = text[:_TEXT_LIMIT].encode("utf-8", "replace").replace(b"\0", b"?")
    return _LENGTH(len(data)) + data
