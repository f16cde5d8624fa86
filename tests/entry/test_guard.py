"""What the guard refuses, seen from a raw socket on a real server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import uvicorn

from gateway.entry.guard import GuardedProtocol, GuardLimits, sweep

pytestmark = pytest.mark.asyncio(loop_scope="module")
SEEN: list[dict[str, Any]] = []


async def app(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    SEEN.append({"path": scope["path"], "body": body, "headers": scope["headers"]})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Served:
    def __init__(self, port: int, server: uvicorn.Server) -> None:
        self.port, self.server = port, server

    async def ask(self, raw: bytes, wait_s: float = 2.0) -> tuple[list[int], bytes, bool]:
        """All statuses that came back, the last body, and whether the server closed the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(raw)
        received, closed = b"", False
        try:
            async with asyncio.timeout(wait_s):
                while piece := await reader.read(65536):
                    received += piece
                    if received.count(b"HTTP/1.1 200") >= raw.count(b" HTTP/1.1\r\n") and received.endswith(b"ok"):
                        break
                else:
                    closed = True
        except TimeoutError:
            pass
        except ConnectionResetError:
            closed = True
        writer.close()
        statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
        return statuses, received.rpartition(b"\r\n\r\n")[2], closed


class Narrow(GuardedProtocol):
    limits = GuardLimits(hosts=frozenset({"a", "127.0.0.1"}), head_timeout_s=0.2)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    config = uvicorn.Config(app, http=Narrow, log_config=None, access_log=False, lifespan="off", port=0)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield Served(server.servers[0].sockets[0].getsockname()[1], server)
    server.should_exit = True
    await task


def post(*headers: str, body: str = "", target: str = "/a", version: str = "HTTP/1.1", host: str = "Host: a") -> bytes:
    lines = [f"POST {target} {version}", *([host] if host else []), *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1")


REFUSED = [
    (
        "length and chunked",
        post("Content-Length: 4", "Transfer-Encoding: chunked", body="5\r\nhello\r\n0\r\n\r\n"),
        400,
    ),
    ("chunked and length", post("Transfer-Encoding: chunked", "Content-Length: 60", body="0\r\n\r\n"), 400),
    ("two lengths", post("Content-Length: 5", "Content-Length: 6", body="hello"), 400),
    ("the same length twice", post("Content-Length: 5", "Content-Length: 5", body="hello"), 400),
    ("length list", post("Content-Length: 5, 5", body="hello"), 400),
    ("length plus", post("Content-Length: +5", body="hello"), 400),
    ("length negative", post("Content-Length: -1"), 400),
    ("xchunked", post("Transfer-Encoding: xchunked", body="5\r\nhello\r\n0\r\n\r\n"), 400),
    ("chunked, identity", post("Transfer-Encoding: chunked, identity", body="5\r\nhello\r\n0\r\n\r\n"), 400),
    ("gzip, chunked", post("Transfer-Encoding: gzip, chunked", body="5\r\nhello\r\n0\r\n\r\n"), 400),
    ("chunked in 1.0", post("Transfer-Encoding: chunked", body="0\r\n\r\n", version="HTTP/1.0"), 400),
    ("chunk size 0x", post("Transfer-Encoding: chunked", body="0x5\r\nhello\r\n0\r\n\r\n"), 400),
    ("chunk size too long", post("Transfer-Encoding: chunked", body="f" * 17 + "\r\nhello"), 400),
    ("chunk line by LF", post("Transfer-Encoding: chunked", body="5;a\nhello\r\n0\r\n\r\n"), 400),
    ("chunk without CRLF", post("Transfer-Encoding: chunked", body="5\r\nhelloXX0\r\n\r\n"), 400),
    ("LF only", b"GET /a HTTP/1.1\nHost: a\n\n", 400),
    ("bare CR in a value", post("X: a\rb"), 400),
    ("NUL in a value", post("X: a\0b"), 400),
    ("0x0b in a value", post("X: a\x0bb"), 400),
    ("0x85 in a value", post("X: a\x85b"), 400),
    ("NEL as UTF-8 in a value", post("X: a\xc2\x85b"), 400),
    ("folded line", post("X: a\r\n b"), 400),
    ("space before the colon", post("X : a"), 400),
    ("no Host", post(host=""), 400),
    ("two Hosts", post("Host: b"), 400),
    ("the same Host twice", post("Host: a"), 400),
    ("Host with a path", post(host="Host: a/?x"), 400),
    ("empty Host", post(host="Host: "), 400),
    ("Host with user", post(host="Host: u@a"), 400),
    ("foreign Host", post(host="Host: evil"), 421),
    ("foreign absolute form", post(target="http://evil/zz"), 421),
    ("other method", b"TRACE /a HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ("HTTP/2.0", b"GET /a HTTP/2.0\r\nHost: a\r\n\r\n", 400),
    ("http/1.1", b"GET /a http/1.1\r\nHost: a\r\n\r\n", 400),
    ("value of 40 KB", post("X: " + "a" * 40_000), 431),
    ("value of 1 MB", post("X: " + "a" * 1_000_000), 431),
    ("101 fields", post(*[f"X{i}: a" for i in range(100)]), 431),
    ("long target", post(target="/" + "a" * 9_000), 431),
    ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
]


@pytest.mark.parametrize(("name", "raw", "status"), REFUSED, ids=[name for name, _, _ in REFUSED])
async def test_guard_hostile_head_is_refused_and_closed(served: Served, name: str, raw: bytes, status: int) -> None:
    statuses, body, closed = await served.ask(raw + b"GET /canary HTTP/1.1\r\nHost: a\r\n\r\n")

    assert (statuses, closed) == ([status], True)
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert "/canary" not in [seen["path"] for seen in SEEN]


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (post("Content-Length: 5", body="hello"), "/a"),
        (post("Transfer-Encoding: chunked", body="5\r\nhello\r\n0\r\n\r\n"), "/a"),
        (post("X: caf\xc3\xa9 \xc3\x85"), "/a"),
        (post(*[f"X{i}: a" for i in range(99)]), "/a"),
        (post("X: " + "a" * 31_000), "/a"),
        (post(target="http://a/zz"), "/zz"),
        (post(target="http://a"), "/"),
        (post(host="Host: A:80"), "/a"),
        (b"GET /a HTTP/1.0\r\n\r\n", "/a"),
    ],
)
async def test_guard_good_head_reaches_the_application(served: Served, raw: bytes, path: str) -> None:
    statuses, _, _ = await served.ask(raw)

    assert statuses == [200]
    assert [seen["path"] for seen in SEEN] == [path]


async def test_guard_trailers_do_not_become_headers(served: Served) -> None:
    raw = post("Transfer-Encoding: chunked", body="5\r\nhello\r\n0\r\nX-Forged: 1\r\n\r\n")

    statuses, _, _ = await served.ask(raw)

    assert statuses == [200]
    assert b"x-forged" not in dict(SEEN[0]["headers"])


async def test_guard_pipelined_requests_are_answered_in_order(served: Served) -> None:
    statuses, _, _ = await served.ask(post("Content-Length: 0") + post("Content-Length: 0", target="/b"))

    assert statuses == [200, 200]
    assert [seen["path"] for seen in SEEN] == ["/a", "/b"]


@pytest.mark.parametrize("begun", [b"", b"GET /a HTTP/1.1\r\nHost: a\r\nX-Half"])
async def test_guard_slow_head_is_closed(served: Served, begun: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(begun)
    await asyncio.sleep(0.25)

    sweep(served.server.server_state.connections, asyncio.get_running_loop().time())

    async with asyncio.timeout(2):
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_guard_idle_connection_after_an_answer_is_left_alone(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(post("Content-Length: 0"))
    await reader.readuntil(b"ok")
    await asyncio.sleep(0.25)

    sweep(served.server.server_state.connections, asyncio.get_running_loop().time())

    writer.write(post("Content-Length: 0", target="/b"))
    assert b"200" in await reader.readuntil(b"ok")
    writer.close()
