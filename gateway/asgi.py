"""The front door: which path goes to which plane.

    /v1/...                                    data plane
    /live /ready /health /metrics /diagnostics operations
    everything else                            Django (admin, control API, conversations), behind a body cap

With IGW_CONTROL_PORT set, the process on the data port has no Django and that on the control port no data plane; the
other paths are 404. The websocket side of the data plane comes with its own module; Django's live pages use Channels.
"""

from __future__ import annotations

from typing import Any

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

from gateway.entry.http import DataPlane
from gateway.entry.operations import Operations
from gateway.entry.reply import Receive, Scope, Send, answer_id, caller
from gateway.protocol.faults import Fault, FaultKind
from gateway.wiring import Gateway, Plane

_DJANGO_BODY_BYTES = 5 * 2**20  # above settings.DATA_UPLOAD_MAX_MEMORY_SIZE Django refuses by itself


class FrontDoor:
    """Sends each HTTP request to the application that its path belongs to."""

    def __init__(self, data: DataPlane | None, operations: Operations, django: Any | None, clock: Any) -> None:
        self._data = data
        self._operations = operations
        self._django = django
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith("/v1/") or path == "/v1":
            if self._data is not None:
                await self._data(scope, receive, send)
                return
        elif path in self._operations.paths:
            await self._operations(scope, receive, send)
            return
        elif self._django is not None:
            await self._django(scope, receive, send)
            return
        fault = Fault(FaultKind.NOT_FOUND, "There is no such path on this port.")
        await caller(scope, send, self._clock).fail(fault, [answer_id(scope)])


class CappedBody:
    """Keeps request bodies for Django under a limit, which Django itself reads whole before any view runs."""

    def __init__(self, app: Any, limit_bytes: int, clock: Any) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken = 0
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if int(declared) > self._limit_bytes:
            fault = Fault(FaultKind.BODY_TOO_LARGE, f"The body may have at most {self._limit_bytes // 2**20} MB.")
            await caller(scope, send, self._clock).fail(fault, [answer_id(scope)])
            return

        async def counted() -> Any:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            return message if taken <= self._limit_bytes else {"type": "http.disconnect"}

        await self._app(scope, counted, send)


def front_door(data: DataPlane | None, operations: Operations, django: Any | None, clock: Any) -> ProtocolTypeRouter:
    """The ASGI application over these parts; what is None is not served there."""
    capped = CappedBody(django, _DJANGO_BODY_BYTES, clock) if django is not None else None
    return ProtocolTypeRouter({"http": FrontDoor(data, operations, capped, clock)})


def application(gateway: Gateway) -> ProtocolTypeRouter:
    """The ASGI application of a process."""
    operations = Operations(gateway, gateway.table, gateway.metrics.scrape, gateway.clock)
    data = gateway.data_plane if gateway.plane is not Plane.CONTROL else None
    django = get_asgi_application() if gateway.plane is not Plane.DATA else None
    return front_door(data, operations, django, gateway.clock)
