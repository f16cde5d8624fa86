"""Reading a request's body within its cap and its place in the process's byte budget.

Time limits are the sweep's (entry/http): it cancels a call whose body is overdue. Nothing is read before the caller is
known and admitted; `Expect: 100-continue` is answered by the server when the first read happens, so only then.
"""

from __future__ import annotations

import asyncio

from gateway.entry.reply import Receive
from gateway.pipeline.client import Client
from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.admission import EnvelopeLease


def declared_length(value: bytes | None, cap_bytes: int) -> int:
    """Content-Length as a number, checked against the cap before anything is read; 0 when there is none."""
    length = int(value) if value else 0  # the parser has refused everything but digits
    if length > cap_bytes:
        raise _too_large(cap_bytes)
    return length


async def read_body(receive: Receive, declared: int, cap_bytes: int, lease: EnvelopeLease, client: Client) -> bytes:
    """The whole body. Raises Fault when it is over the cap or the budget, CancelledError when the client left."""
    lease.grow(declared)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise asyncio.CancelledError
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > declared:
            lease.grow(len(body) - declared)
        if len(body) > cap_bytes:
            raise _too_large(cap_bytes)
        return body
    pieces, size = [body], len(body)
    while True:
        if size > cap_bytes:
            raise _too_large(cap_bytes)
        client.body_bytes = size
        if size > declared:
            lease.grow(size - declared)
            declared = size
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])


def _too_large(cap_bytes: int) -> Fault:
    return Fault(FaultKind.BODY_TOO_LARGE, f"The request body may have at most {cap_bytes // 2**20} MB.")
