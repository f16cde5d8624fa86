"""A call that is allowed and understood, on its way to a worker: what the phases after the body hand on."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.pipeline.client import Client
from gateway.pipeline.exchange import Exchange
from gateway.routing.snapshot import KeySpec, PoolSpec, WorkerId
from gateway.services.base import Call


@dataclass(slots=True)
class Order:
    """`head` grows: it is what the answer's head has of ours, whichever way the call ends."""

    key: KeySpec
    pool: PoolSpec
    call: Call
    exchange: Exchange
    client: Client
    request_headers: bytes  # headers that go on to the worker, rendered
    head: list[tuple[bytes, bytes]]
    shows_worker: bool
    tried: set[WorkerId] = field(default_factory=set)

    def answer_head(self) -> list[tuple[bytes, bytes]]:
        """Our headers with what is known of the way the call went."""
        head = [*self.head, (b"x-igw-attempts", b"%d" % len(self.exchange.attempts))]
        if self.shows_worker:
            head.append((b"x-igw-worker", self.exchange.worker.encode()))
        return head
