"""A call that is allowed and understood, on its way to a worker: what the phases after the body hand on."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.pipeline.client import Client, Headers
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.ports import Verdict
from gateway.routing.requirement import Facts, Priority
from gateway.routing.snapshot import GroupSpec, KeySpec, PoolSpec, Snapshot, WorkerId
from gateway.services.base import Call, Service


@dataclass(frozen=True, slots=True)
class RoutingHeaders:
    """What the caller says of where its call should go."""

    key: str | None = None
    target: str | None = None
    priority: Priority = Priority.INTERACTIVE
    asserted_model: bytes | None = None  # to be the body's
    asserted_stream: bytes | None = None


@dataclass(slots=True)
class Order:
    """`head` grows: it is what the answer's head has of ours, whichever way the call ends.

    `target` is what was asked for; `pool` the one that serves, for a group the member that is being asked.
    """

    snapshot: Snapshot
    key: KeySpec
    target: PoolSpec | GroupSpec
    service: Service
    call: Call
    exchange: Exchange
    client: Client
    headers: Headers  # as the client sent them
    request_headers: bytes  # those that go on to the worker, rendered
    head: list[tuple[bytes, bytes]]
    shows_worker: bool
    routing: RoutingHeaders
    tried: set[WorkerId] = field(default_factory=set)
    limits: list[Verdict] = field(default_factory=list)  # permits taken
    _pool: PoolSpec | None = None
    _facts: Facts | None = None

    @property
    def pool(self) -> PoolSpec:
        """Whose worker is asked, or was asked last."""
        assert self._pool is not None, "no pool was begun"
        return self._pool

    def begin(self, pool: PoolSpec) -> None:
        """Ask this pool's workers from now on; its rules hold for the call."""
        is_first = self._pool is None
        self._pool = pool
        exchange = self.exchange
        exchange.pool_id, exchange.pool, exchange.history = pool.id, pool.model, pool.history
        self.client.deadline_s = exchange.arrived_s + pool.timeouts.total_s
        header = (b"x-igw-model", pool.model.encode())
        if is_first:
            self.head.append(header)
        else:
            self.show(header)

    def facts(self) -> Facts:
        """What the request says of itself, read at the first question."""
        if self._facts is None:
            self._facts = self.service.facts(self.call)
        return self._facts

    def show(self, *headers: tuple[bytes, bytes]) -> None:
        """Set headers of the answer, in place of earlier ones of the same name."""
        names = {name for name, _ in headers}
        self.head[:] = [header for header in self.head if header[0] not in names]
        self.head += headers

    def hide(self, name: bytes) -> None:
        """Take a header of the answer back."""
        self.head[:] = [header for header in self.head if header[0] != name]

    def answer_head(self) -> list[tuple[bytes, bytes]]:
        """Our headers with what is known of the way the call went."""
        head = [*self.head, (b"x-igw-attempts", b"%d" % len(self.exchange.attempts))]
        if self.shows_worker:
            head.append((b"x-igw-worker", self.exchange.worker.encode()))
        return head
