"""A data plane on a real port, over real scripted workers, with a configuration made by hand.

Only what lives outside the process is replaced: limits count in this object, records and nudges end in lists.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.asgi import front_door
from gateway.entry.auth import Authenticator
from gateway.entry.guard import GuardedProtocol
from gateway.entry.http import DataPlane, EntryOptions
from gateway.entry.operations import Operations
from gateway.entry.sweeper import Patience, Sweeper
from gateway.pipeline.answer import Answering
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.http import HttpPipeline
from gateway.pipeline.inquiry import Inquirer
from gateway.pipeline.members import Members
from gateway.pipeline.ports import Limit, Verdict
from gateway.policies.registry import POLICIES
from gateway.protocol.apikeys import digest_of, new_key, prefix_of
from gateway.protocol.ids import new_uuid7
from gateway.routing.admission import Envelope
from gateway.routing.options import TimeoutOptions
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need
from gateway.routing.rest import Rest
from gateway.routing.snapshot import (
    AccountSpec,
    GroupSpec,
    KeyId,
    KeySpec,
    PolicySpec,
    PoolId,
    PoolSpec,
    Snapshot,
    TeamId,
    WorkerId,
    WorkerSpec,
)
from gateway.routing.table import Table
from gateway.services.registry import SERVICES
from gateway.upstream.egress import Egress
from gateway.upstream.wire import Wire
from gateway.vendors.registry import ADAPTERS
from tests.fakes.worker import FakeWorker

PEPPER = b"pepper"
VIA = b"1.1 igw-test"
SHORT = TimeoutOptions(connect_s=1.0, first_byte_s=0.6, idle_s=0.6, total_s=30.0)


class CountingLimiter:
    """The limits' port, for one process and one minute."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def try_take(self, limit: Limit) -> Verdict | None:
        return None

    async def take(self, limit: Limit) -> Verdict:
        used = self.taken.get(limit.scope, 0)
        if used >= limit.per_min:
            return Verdict(False, limit, 0, 60.0, 30.0)
        self.taken[limit.scope] = used + 1
        return Verdict(True, limit, limit.per_min - used - 1, 60.0)

    def give_back(self, limit: Limit) -> None:
        self.taken[limit.scope] -= 1


class Nudges(list[str]):
    def nudge(self, worker: WorkerId) -> None:
        self.append(worker)


class Rests(list[tuple[str, str]]):
    def tell(self, worker: WorkerId, rest: Rest, now: float) -> None:
        self.append((worker, rest.reason.value if rest.reason else ""))


class NoMemory:
    async def recall(self, pool: Pool, need: Need) -> None:
        pass


class Standing:
    """A process of which nothing is wrong and which nobody probes."""

    is_draining = False

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    @property
    def snapshot(self) -> Snapshot | None:
        return self._plane.snapshot

    def problems(self) -> list[str]:
        return []

    def probes_since_unix_s(self) -> float | None:
        return None

    def has_fresh_probes(self) -> bool:
        return False

    def diagnostics(self) -> dict[str, Any]:
        return {}


class Rig:
    """`url` is the gateway's; `key` may use every model. `exchanges` are the calls that ended."""

    def __init__(self, pools: Sequence[PoolSpec], patience: Patience, body_limit: int, limits: dict[str, Any]) -> None:
        clock = time.monotonic
        self.exchanges: list[Exchange] = []
        self.clients: list[openai.AsyncOpenAI] = []
        self.nudges = Nudges()
        self.limiter = CountingLimiter()
        self.table = Table({name: entry.make for name, entry in POLICIES.items()})
        self.wire = Wire(egress=Egress())
        self.envelope = Envelope(**{"max_calls": 1000, "max_bytes": 2**28, **limits})
        self.rests = Rests()
        answering = Answering(self.wire, ADAPTERS, clock, time.time, 2**20, VIA)
        inquirer = Inquirer(lambda: new_uuid7(time.time(), secrets.randbits), clock, time.time, self.exchanges.append)
        self.members = members = Members(self.table, inquirer, random.random, clock, time.time)
        pipeline = HttpPipeline(
            self.table, self.limiter, self.nudges, self.rests, NoMemory(), members, answering, clock, time.time
        )
        self.plane = DataPlane(
            SERVICES,
            Authenticator([PEPPER]),
            self.envelope,
            pipeline,
            EntryOptions(body_limit, True, VIA),
            lambda: new_uuid7(time.time(), secrets.randbits),
            clock,
            time.time,
            self.exchanges.append,
        )
        self.sweeper = Sweeper(self.plane.running, patience, clock)
        self.keys: dict[str, KeySpec] = {}
        self.key = self.add_key()
        self.pools = list(pools)
        self.url = ""
        self.connections: set[Any] = set()  # the server's
        self.use(self.pools)

    def add_key(self, **fields: Any) -> str:
        """A key's text; `fields` are those of its record."""
        text = new_key(secrets.token_bytes)
        digest = digest_of(text, PEPPER)
        key = KeySpec(KeyId(len(self.keys) + 1), "k", TeamId(1), "team", prefix_of(text), digest)
        self.keys[key.prefix] = dataclasses.replace(key, **fields)
        return text

    def use(
        self, pools: Sequence[PoolSpec], groups: Sequence[GroupSpec] = (), accounts: Sequence[AccountSpec] = ()
    ) -> None:
        """Swap in a configuration."""
        names = {name: pool for pool in pools for name in (pool.model, *pool.aliases)}
        snapshot = Snapshot(
            1,
            {pool.model: pool for pool in pools},
            names,
            dict(self.keys),
            {group.id: group for group in groups},
            {account.name: account for account in accounts},
        )
        self.table.apply(snapshot)
        self.members.keep(groups)
        self.plane.snapshot = snapshot

    def openai(self, **options: Any) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0, **options)
        self.clients.append(client)
        return client

    async def post(self, body: Any, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
        """One request with the rig's key; `headers` with `_` for `-`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        sent = {"authorization": f"Bearer {self.key}", "content-type": "application/json", **given}
        async with httpx.AsyncClient(timeout=10) as client:
            return await client.post(self.url + path, headers=sent, **content)

    async def connect(self, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A raw connection with a chat request on its way."""
        host, port = self.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {self.key}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        return reader, writer

    async def until(self, condition: Any, within_s: float = 5.0) -> None:
        end = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end, "the condition did not come true in time"
            await asyncio.sleep(0.002)

    async def ended(self, count: int = 1) -> Exchange:
        """The last exchange, once so many have ended."""
        await self.until(lambda: len(self.exchanges) >= count)
        return self.exchanges[-1]

    def shrink_send_buffers(self) -> None:
        """Let the kernel take little from the connections that there are, so that a client that does not read shows."""
        for connection in self.connections:
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def is_idle(self) -> bool:
        """Every lease is back and no call is left."""
        in_flight = [worker.in_flight for worker in self.table.workers()]
        waiting = [(pool.in_flight, pool.waiting) for pool in self.table.pools()]
        return not self.plane.running and not any(in_flight) and not any(map(any, waiting))


def pool_of(*workers: FakeWorker, model: str = "m", caps: int | None = None, **fields: Any) -> PoolSpec:
    """A pool over fake workers, asked in their order (the least recently chosen first)."""
    specs = tuple(
        WorkerSpec(
            WorkerId(f"{model}-w{number}"), f"w{number}", worker.url, max_in_flight=caps, credential="sk-upstream"
        )
        for number, worker in enumerate(workers, 1)
    )
    policy = PolicySpec("round_robin", POLICIES["round_robin"].options())
    given = {"timeouts": SHORT, "policy": policy, **fields}
    return PoolSpec(PoolId(abs(hash(model)) % 10_000), model, workers=specs, **given)


@asynccontextmanager
async def running(
    *pools: PoolSpec,
    silence_s: float = 15.0,
    client_idle_s: float = 30.0,
    body_s: float = 60.0,
    body_limit: int = 2**20,
    protocol: type[HttpToolsProtocol] = GuardedProtocol,
    **limits: Any,
) -> AsyncIterator[Rig]:
    """A rig that serves."""
    rig = Rig(pools, Patience(body_s, client_idle_s, silence_s), body_limit, limits)

    async def scrape() -> bytes:
        return b""

    operations = Operations(Standing(rig.plane), rig.table, scrape, time.monotonic)
    app = front_door(rig.plane, operations, None, time.monotonic)
    config = uvicorn.Config(app, http=protocol, log_config=None, access_log=False)
    config.load()
    state = ServerState()  # uvicorn's protocol without its server, whose start and stop take 0.2 s
    rig.connections = state.connections
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    sweeping = asyncio.create_task(rig.sweeper.run())
    rig.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield rig
    finally:
        sweeping.cancel()
        server.close()
        for client in rig.clients:
            await client.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await rig.until(lambda: not state.tasks)
        await rig.wire.close()
