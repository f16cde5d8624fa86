"""A finished exchange as a row of PostgreSQL's COPY in its binary format (documentation of COPY, "Binary Format").

Encoding by hand is on every call's path and three times cheaper than handing values to a driver. Bodies stay the bytes
that they are; texts lose what a text column cannot hold.
"""

from __future__ import annotations

import functools
import struct
import uuid

import msgspec

from gateway.pipeline.exchange import Exchange
from gateway.routing.snapshot import HistoryMode

Row = tuple[bytes, ...]  # pieces of one encoded row: bodies are not copied

# In the order of the encoded row.
COLUMNS = (
    *("id", "created_at", "status", "is_streaming", "is_truncated", "queued_s", "duration_s", "revision"),
    *("input_tokens", "output_tokens", "cached_tokens", "response_bytes"),
    *("team_id", "key_id", "pool_id", "ttft_s"),
    *("team", "key", "request_id", "service", "model", "pool", "worker_id", "worker", "conversation_id"),
    *("outcome", "error_code", "usage_source", "attempts", "request_body", "response_body"),
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


def encode(exchange: Exchange) -> Row:
    """The row for COLUMNS. Nothing that a client or a worker sends makes it fail."""
    usage = exchange.usage
    parts = [
        _HEAD.pack(
            *(len(COLUMNS), 16, bytes.fromhex(exchange.id.replace("-", ""))),
            *(8, round((exchange.arrived_unix_s - _POSTGRES_EPOCH_S) * 1e6)),
            *(4, exchange.status, 1, exchange.is_streaming, 1, exchange.is_truncated),
            *(8, exchange.queued_s, 8, exchange.duration_s, 8, exchange.revision),
            *(8, _count(usage.input_tokens), 8, _count(usage.output_tokens), 8, _count(usage.cached_tokens)),
            *(8, exchange.response_bytes),
        ),
        _NULL if exchange.team_id is None else _NUMBER(8, exchange.team_id),
        _NULL if exchange.key_id is None else _NUMBER(8, exchange.key_id),
        _NULL if exchange.pool_id is None else _NUMBER(8, exchange.pool_id),
        _NULL if exchange.ttft_s is None else _SECONDS(8, exchange.ttft_s),
        _name(exchange.team),
        _name(exchange.key),
        _text(exchange.request_id),
        _name(exchange.service),
        _text(exchange.model),
        _name(exchange.pool),
        _name(exchange.worker_id or ""),
        _name(exchange.worker),
        _text(exchange.conversation_id),
        _name(exchange.outcome.value),
        _name(exchange.error_code),
        _name(usage.source.value),
    ]
    attempts = msgspec.json.encode(exchange.attempts)
    parts += (_LENGTH(len(attempts) + 1), b"\x01", attempts)  # 1: the version of jsonb's binary form
    if exchange.history is HistoryMode.METADATA:
        return (b"".join((*parts, _NULL, _NULL)),)
    request, response = exchange.request_body, exchange.response_body
    parts.append(_LENGTH(len(request)))
    return b"".join(parts), request, _LENGTH(len(response)), response


def exchange_id(row: Row) -> str:
    """The id of an encoded row."""
    return str(uuid.UUID(bytes=row[0][6:22]))


def _count(number: int) -> int:
    """A count that others made, as a bigint."""
    return number if 0 <= number <= _LARGEST else max(0, min(number, _LARGEST))


def _text(text: str) -> bytes:
    """What a text column takes after its length: no NUL, no lone surrogate, not endless."""
    data = text[:_TEXT_LIMIT].encode("utf-8", "replace").replace(b"\0", b"?")
    return _LENGTH(len(data)) + data


_name = functools.lru_cache(4096)(_text)  # for texts of the configuration: a few, again and again
