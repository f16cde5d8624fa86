"""The HTTP/1.1 client of the data plane: keep-alive pools of connections and one sweeper for all deadlines.

A `Wire` belongs to one event loop. It connects only to addresses that `egress` allows, keeps idle connections for a
short while, last used first, and gives each exchange an `Answer`. One exchange costs one future and no task; no timer
is set per request, the sweeper looks at every connection four times a second.

A connection goes back to its pool only after a complete keep-alive answer to a completely sent request. Everything
else (cancel, fault, unread or unasked bytes) aborts it. Connections are not limited here: leases above bound them.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterable, Callable, Collection

from gateway.protocol.faults import Fault, FaultKind
from gateway.upstream.answer import Answer
from gateway.upstream.connection import Connection, Origin
from gateway.upstream.egress import Address, Egress

__all__ = ["Answer", "Origin", "Wire"]

SWEEP_S = 0.25
IDLE_LIMIT = 256  # idle connections kept for one origin; a burst's rest is closed at once


class Wire:
    """All connections of a process towards workers and vendors."""

    def __init__(
        self,
        *,
        egress: Egress,
        idle_s: float = 3.0,  # below the 5 s after which uvicorn, hence vLLM and SGLang, close idle connections
        clock: Callable[[], float] = time.monotonic,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._egress = egress
        self._idle_s = idle_s
        self._clock = clock
        self._tls = tls
        self._open: set[Connection] = set()
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def open_connections(self) -> int:
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        return sum(map(len, self._idle.values()))

    async def open(
        self,
        origin: Origin,
        request: bytes,
        *,
        connect_s: float,
        first_byte_s: float,
        idle_s: float,
        gather_bytes: int = 0,
        more: AsyncIterable[bytes] | None = None,
    ) -> Answer:
        """Send `request`, head and body (then `more`, already framed), and wait for the head of the answer.

        With `gather_bytes` it waits for the whole body, or until the body is longer than that. The caller closes the
        answer, or reads it to its end. Raises CONNECT_FAILED, UPSTREAM_RESET, UPSTREAM_PROTOCOL, FIRST_BYTE_TIMEOUT,
        and while gathering IDLE_TIMEOUT. A reused connection that dies without a byte is replaced once by a fresh one;
        a request with `more` cannot be sent twice, so it always gets a fresh one. Cancelled: the connection is aborted.
        """
        connection = self._take(origin) if more is None else None
        is_fresh = connection is None
        while True:
            if connection is None:
                connection = await self._connect(origin, connect_s)
            answer = Answer(
                connection,
                self._clock,
                is_head=request.startswith(b"HEAD "),
                first_byte_s=first_byte_s,
                idle_s=idle_s,
                gather_bytes=gather_bytes,
            )
            connection.begin(answer, request, has_more=more is not None)
            try:
                if more is not None:
                    await answer.send(more)
                await answer.ready()
                return answer
            except Fault:
                if is_fresh or not answer.is_stale:
                    raise
            connection, is_fresh = None, True

    def forget(self, origins_in_use: Collection[Origin]) -> None:
        """Close the idle connections of every other origin."""
        for origin in self._idle.keys() - set(origins_in_use):
            for connection in tuple(self._idle[origin]):
                connection.abort()
            del self._idle[origin]

    async def close(self) -> None:
        """Abort every connection, running exchanges included."""
        self._is_closed = True
        for connection in tuple(self._open):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.sleep(0)  # the transports close their sockets

    # Connecting

    def _take(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            connection.is_idle = False
            if self._clock() - connection.idle_since < self._idle_s:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, connect_s: float) -> Connection:
        if self._is_closed:
            raise Fault(FaultKind.DRAINING, "the gateway is shutting down")
        try:
            async with asyncio.timeout(connect_s):
                addresses = await self._egress.resolve(origin.host, origin.port)
                for address in addresses[:-1]:
                    try:  # a share of the time each, so that one that swallows packets leaves some for the next
                        async with asyncio.timeout(connect_s / len(addresses)):
                            return await self._dial(origin, address)
                    except OSError:
                        pass
                return await self._dial(origin, addresses[-1])
        except OSError as error:
            raise Fault(FaultKind.CONNECT_FAILED, f"no connection to the upstream: {_reason(error)}") from error

    async def _dial(self, origin: Origin, address: Address) -> Connection:
        connection = Connection(self, origin)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                address[1][0],
                address[1][1],
                ssl=self._tls_context() if origin.tls else None,
                server_hostname=origin.host if origin.tls else None,
            )
        except BaseException:
            connection.abort()
            raise
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    # What connections report

    def made(self, connection: Connection) -> None:
        self._open.add(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection.is_idle:
            connection.is_idle = False
            self._idle[connection.origin].remove(connection)

    def keep(self, connection: Connection) -> None:
        """Take back a connection that is fit for the next exchange."""
        idle = self._idle.get(connection.origin)
        if idle is None:
            idle = self._idle[connection.origin] = []
        if self._is_closed or len(idle) >= IDLE_LIMIT:
            connection.abort()
            return
        connection.is_idle = True
        connection.idle_since = self._clock()
        idle.append(connection)

    def _sweep(self) -> None:
        now = self._clock()
        for connection in tuple(self._open):
            if connection.answer is not None:
                connection.answer.check(now)
            elif connection.is_idle and now - connection.idle_since >= self._idle_s:
                connection.abort()
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep) if self._open else None


def _reason(error: OSError) -> str:
    """Why, without the address that the library's own text may hold."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else "the name does not resolve"
