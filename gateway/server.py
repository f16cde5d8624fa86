"""The gateway's processes: uvicorn in each, one listening socket of its own each, drained before it closes.

One process serves by itself. With several, or with a control port, a parent starts a child per place, each with its
own SO_REUSEPORT socket (a shared socket starves some of them), restarts those that die, and passes signals on.

    serving --SIGTERM--> draining (/ready says 503, the port still open for IGW_DRAIN_DELAY_S)
            --> closed to new connections, running calls go on for IGW_GRACE_S
            --> calls that still run end with an honest error --> exit 0
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

import uvicorn
from channels.routing import ProtocolTypeRouter
from django.conf import settings

from gateway.asgi import application
from gateway.entry.guard import GuardedProtocol, GuardLimits, sweep
from gateway.entry.reply import Receive, Scope, Send
from gateway.runtime.lineage import die_with_parent
from gateway.wiring import Gateway, Plane

logger = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75  # above the 60 s of common load balancers, so that they close first
_CLOSE_S = 5  # what connections get after their calls were ended
_YOUNG_S = 5.0  # a child that dies younger than this is failing to start


@dataclass(frozen=True, slots=True)
class Place:
    """One process to run."""

    name: str
    plane: Plane
    port: int


def places() -> list[Place]:
    """The processes that the settings ask for."""
    if settings.CONTROL_PORT is None:
        return [Place(f"gateway-{i}", Plane.BOTH, settings.PORT) for i in range(settings.PROCESSES)]
    data = [Place(f"data-{i}", Plane.DATA, settings.PORT) for i in range(settings.PROCESSES)]
    return [*data, Place("control", Plane.CONTROL, settings.CONTROL_PORT)]


class GatewayServer(uvicorn.Server):
    """uvicorn with an orderly end, and with overdue request heads closed."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.begin_drain()
        if not self.force_exit and settings.DRAIN_DELAY_S:
            await asyncio.sleep(settings.DRAIN_DELAY_S)
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        deadline = time.monotonic() + settings.GRACE_S
        while self._gateway.running_calls() and not self.force_exit and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # a second signal sets force_exit, which is no event
        self._gateway.end_calls()
        await super().shutdown(sockets)


def run_place(place: Place, *, is_alone: bool) -> None:
    """Serve in this process until SIGTERM. Exits with 1 when the port cannot be had."""
    hosts = frozenset(host.lower() for host in settings.ALLOWED_HOSTS if host != "*")
    GuardedProtocol.limits = GuardLimits(
        hosts=frozenset() if "*" in settings.ALLOWED_HOSTS else hosts, head_timeout_s=settings.HEAD_TIMEOUT_S
    )
    listener = _listen(settings.HOST, place.port, shares_port=not is_alone)
    gateway = Gateway(place.name, place.plane)
    app = ProtocolTypeRouter({**application(gateway).application_mapping, "lifespan": _Lifespan(gateway)})
    config = uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CLOSE_S,
        backlog=4096,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, _already_stopping)
    GatewayServer(config, gateway).run(sockets=[listener])


def run_all() -> int:
    """Serve with as many processes as the settings ask for; the exit status."""
    wanted = places()
    if len(wanted) == 1:
        run_place(wanted[0], is_alone=True)
        return 0
    for port in {place.port for place in wanted}:
        _listen(settings.HOST, port, shares_port=False).close()  # taken by somebody else: say so once, not per child
    return _Parent(wanted).run()


def _already_stopping(signum: int, frame: object) -> None:
    """uvicorn raises the signal that ended it once more, for handlers that were there before; the exit status is 0."""


class _Lifespan:
    """Starts and stops the gateway's background work with the server."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await self._gateway.start()
        gc.collect()
        gc.freeze()  # a full collection over Django's heap would stop the loop for 25 ms
        gc.set_threshold(50_000, 50, 50)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._gateway.stop()
        await send({"type": "lifespan.shutdown.complete"})


class _Parent:
    """Keeps the children running."""

    def __init__(self, wanted: list[Place]) -> None:
        self._wanted = wanted
        self._children: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self._is_stopping = False

    def run(self) -> int:
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._stop)
        for place in self._wanted:
            self._start(place)
        failures = 0
        while self._children:
            time.sleep(0.1)
            for place in self._wanted:
                child, started_s = self._children.get(place.name, (None, 0.0))
                if child is None or child.poll() is None:
                    continue
                del self._children[place.name]
                if self._is_stopping:
                    continue
                failures = failures + 1 if time.monotonic() - started_s < _YOUNG_S else 0
                logger.error("process died", extra={"fields": {"process": place.name, "status": child.returncode}})
                if failures >= 3 * len(self._wanted):
                    self._stop(signal.SIGTERM, None)
                    continue
                self._start(place)
        return 0 if self._is_stopping and failures < 3 * len(self._wanted) else 1

    def _start(self, place: Place) -> None:
        argv = [sys.executable, sys.argv[0], "serve", "--place", place.name]
        self._children[place.name] = (subprocess.Popen(argv, preexec_fn=die_with_parent()), time.monotonic())

    def _stop(self, signum: int, frame: object) -> None:
        self._is_stopping = True
        for child, _ in self._children.values():
            child.send_signal(signum)


def serve(place_name: str | None) -> int:
    """What `manage.py serve` does; a name runs that one place, as a child."""
    if place_name is None:
        return run_all()
    place = next(place for place in places() if place.name == place_name)
    run_place(place, is_alone=False)
    return 0


def _listen(host: str, port: int, *, shares_port: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shares_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        sys.exit(f"cannot listen on {host}:{port}: {error.strerror}; choose another IGW_PORT or stop what uses it")
    listener.set_inheritable(False)
    return listener
