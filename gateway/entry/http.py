"""The data plane over HTTP: from an ASGI request to an order for the pipeline, and every way it can end.

Order of work: who calls, room in the process, the body, what is asked, which pool. Each call ends in `_ended`, once,
with an Exchange that says how.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.entry.auth import Authenticator
from gateway.entry.body import declared_length, read_body
from gateway.entry.guard import Connection
from gateway.entry.reply import Receive, Scope, Send, caller
from gateway.entry.routing import check_assertions, routing_headers, target_of, usable_names
from gateway.entry.watch import BodyThenDisconnect
from gateway.pipeline.client import Client, Ended, sent
from gateway.pipeline.exchange import Exchange, Outcome
from gateway.pipeline.http import HttpPipeline
from gateway.pipeline.order import Order
from gateway.protocol.faults import Fault, FaultKind, Side
from gateway.protocol.headers import forward_request, request_id_of
from gateway.protocol.modellist import model_entry, model_list
from gateway.routing.admission import Envelope
from gateway.routing.snapshot import GroupSpec, KeySpec, Snapshot
from gateway.services.base import Service

logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]
_MODELS = "/v1/models"


@dataclass(frozen=True, slots=True)
class EntryOptions:
    """Limits of one process and what it shows."""

    body_limit_bytes: int
    shows_worker: bool
    via: bytes  # our own name in `Via`; a request that carries it has been here already


class DataPlane:
    """The ASGI application for /v1. `snapshot` is swapped from outside; a call keeps the one it started with."""

    def __init__(
        self,
        services: Mapping[str, Service],
        authenticator: Authenticator,
        envelope: Envelope,
        pipeline: HttpPipeline,
        options: EntryOptions,
        new_id: Callable[[], str],
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        on_end: Callable[[Exchange], None],
    ) -> None:
        self.snapshot: Snapshot | None = None
        self.running: set[Client] = set()
        self._services = {f"/v1{service.path}": service for service in services.values()}
        self._authenticator = authenticator
        self._envelope = envelope
        self._pipeline = pipeline
        self._options = options
        self._new_id = new_id
        self._clock = clock
        self._unix_clock = unix_clock
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection | None = scope.get("igw")
        client = caller(scope, send, self._clock)
        headers: Headers = scope["headers"]
        asked_id = next((value for name, value in headers if name == b"x-request-id"), None)
        exchange_id = self._new_id()
        request_id = request_id_of(asked_id, lambda: exchange_id)
        service = self._services.get(scope["path"])
        exchange = Exchange(
            exchange_id, request_id, self._unix_clock(), self._clock(), service.name if service is not None else ""
        )
        head = [(b"x-request-id", request_id.encode())]
        if connection is not None:
            connection.client = client
        self.running.add(client)
        watcher: asyncio.Task[None] | None = None
        if connection is None:
            receive = body_first = BodyThenDisconnect(receive)
            watcher = asyncio.create_task(body_first.watch(client))
        try:
            if service is None:
                await self._other(scope, client, head)
            else:
                await self._call(scope["method"], headers, receive, client, service, exchange, head)
        except Fault as fault:
            await self._fault(client, exchange, head, fault)
        except asyncio.CancelledError:
            await self._cancelled(client, exchange, head, connection)
        except Exception:
            logger.exception("call failed", extra={"fields": {"request_id": request_id}})
            await self._fault(client, exchange, head, Fault(FaultKind.INTERNAL, "The gateway failed on this request."))
        finally:
            self.running.discard(client)
            if watcher is not None:
                watcher.cancel()
            if connection is not None:
                connection.client = None
            if service is not None:
                exchange.duration_s = self._clock() - exchange.arrived_s
                self._on_end(exchange)

    async def _call(
        self,
        method: str,
        headers: Headers,
        receive: Receive,
        client: Client,
        service: Service,
        exchange: Exchange,
        head: Headers,
    ) -> None:
        snapshot, key = self._who(headers, exchange)
        if method != "POST":
            head.append((b"allow", b"POST"))
            raise Fault(FaultKind.METHOD_NOT_ALLOWED, "This path is asked with POST.")
        declared = declared_length(self._facts(headers, exchange), self._options.body_limit_bytes)
        routing = routing_headers(headers, key)
        lease = self._envelope.enter(service.name)
        try:
            client.body_since_s = exchange.arrived_s
            body = await read_body(receive, declared, self._options.body_limit_bytes, lease, client)
            client.body_since_s = None
            call = service.read(body)
            exchange.model, exchange.is_streaming = call.model, call.is_streaming
            check_assertions(routing, call)
            target = target_of(snapshot, key, call.model)
            exchange.request_body = body
            if isinstance(target, GroupSpec):
                exchange.group = target.name
            order = Order(
                snapshot=snapshot,
                key=key,
                target=target,
                service=service,
                call=call,
                exchange=exchange,
                client=client,
                headers=headers,
                request_headers=forward_request(headers),
                head=head,
                shows_worker=self._options.shows_worker or key.is_operator,
                routing=routing,
            )
            await self._pipeline.serve(order)
        finally:
            lease.release()

    def _who(self, headers: Headers, exchange: Exchange) -> tuple[Snapshot, KeySpec]:
        snapshot = self.snapshot
        if snapshot is None:
            raise Fault(FaultKind.STARTING, "The gateway has no configuration yet.", retry_after_s=1)
        key = self._authenticator.principal(headers, snapshot, exchange.arrived_unix_s)
        exchange.revision = snapshot.revision
        exchange.team_id, exchange.team, exchange.key_id, exchange.key = key.team_id, key.team, key.id, key.name
        return snapshot, key

    def _facts(self, headers: Headers, exchange: Exchange) -> bytes | None:
        """What the headers say of the body; refuses what this service cannot take. Returns Content-Length."""
        length = None
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"content-type":
                if value.split(b";", 1)[0].strip().lower() != b"application/json":
                    raise Fault(FaultKind.UNSUPPORTED_MEDIA, "The body is expected as application/json.")
            elif name == b"content-encoding" and value.strip().lower() != b"identity":
                raise Fault(FaultKind.UNSUPPORTED_MEDIA, "A compressed body is not supported.")
            elif name == b"x-igw-conversation-id":
                exchange.conversation_id = value[:200].decode("latin-1")
            elif name == b"via" and self._options.via in value:
                raise Fault(FaultKind.LOOP, "This request came back to the gateway that sent it on.")
        return length

    async def _other(self, scope: Scope, client: Client, head: Headers) -> None:
        """The list of models, one model, and every path that is not served."""
        snapshot, key = self._who(scope["headers"], Exchange("", "", self._unix_clock(), 0.0, ""))
        path: str = scope["path"]
        if path != _MODELS and not path.startswith(f"{_MODELS}/"):
            raise Fault(FaultKind.NOT_FOUND, "There is no such path; see the list of endpoints in the documentation.")
        if scope["method"] not in ("GET", "HEAD"):
            head.append((b"allow", b"GET, HEAD"))
            raise Fault(FaultKind.METHOD_NOT_ALLOWED, "This path is asked with GET.")
        if path == _MODELS:
            body = model_list(list(usable_names(snapshot, key)))
        else:
            name = path.removeprefix(f"{_MODELS}/")
            body = model_entry(name, target_of(snapshot, key, name).created_s)
        length = (b"content-length", b"%d" % len(body))
        await sent(client.start(200, [(b"content-type", b"application/json"), length, *head]))
        await sent(client.end(body))

    async def _fault(self, client: Client, exchange: Exchange, head: Headers, fault: Fault) -> None:
        exchange.error_code = fault.code
        if exchange.ttft_s is not None:
            exchange.outcome = Outcome.INTERRUPTED
        elif fault.kind is FaultKind.INTERNAL:
            exchange.outcome = Outcome.ERROR
        else:
            exchange.outcome = Outcome.FAILED if fault.side is Side.UPSTREAM else Outcome.REFUSED
        if not client.is_started:
            exchange.status = fault.status
        if fault.kind is FaultKind.UNAUTHENTICATED:
            head.append((b"www-authenticate", b"Bearer"))
        if exchange.attempts:
            head.append((b"x-igw-attempts", b"%d" % len(exchange.attempts)))
        try:
            await client.fail(fault, head)
        except asyncio.CancelledError:  # the client left while it was told
            client.abort()

    async def _cancelled(
        self, client: Client, exchange: Exchange, head: Headers, connection: Connection | None
    ) -> None:
        """Cancelled from outside: the client left, or we end the call and owe it a word."""
        why = client.ended or Ended.CLIENT_GONE
        if why in (Ended.CLIENT_GONE, Ended.SLOW_READER):
            exchange.outcome, exchange.error_code = Outcome.CLIENT_CLOSED, why.value
            if why is Ended.SLOW_READER and connection is not None:
                connection.abort()
            return
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        await self._fault(client, exchange, head, _FAULTS[why])


_FAULTS = {
    Ended.BODY_TIMEOUT: Fault(FaultKind.BODY_TIMEOUT, "The request's body did not arrive in time."),
    Ended.TOTAL_TIMEOUT: Fault(FaultKind.TOTAL_TIMEOUT, "The call took longer than the model's limit."),
    Ended.DRAIN: Fault(FaultKind.DRAINING, "The gateway is shutting down.", retry_after_s=1),
}
