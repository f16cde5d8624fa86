"""`manage.py demo_worker`: a friendly worker for trying the gateway out, and one that misbehaves on request.

Answers `/health`, `/v1/models`, `/v1/chat/completions` (streamed too), `/v1/embeddings` and `/v1/audio/speech` as an
OpenAI-compatible server does, without a key. A fault comes with `--fault` on every call or on the share `--fault-rate`
of them, or with the header `x-demo-fault` on one; `/health` stays well, so that traffic has to find out. What the
answers say is `demo_answers`'. Imports no Django, to be there at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.launch.demo_answers import BadCall, chat, chat_chunks, embeddings, error, models, speech

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = b"application/json"
_SLOW_FIRST_BYTE_S, _SLOW_FACTOR = 3.0, 10


class DemoFault(StrEnum):
    """How a demo worker can fail a call."""

    ERROR_500 = "error500"
    ERROR_429 = "error429"  # with Retry-After
    RESET = "reset"  # the connection is reset before the answer
    HANG = "hang"  # not one byte until the client goes
    CLOSE_MID_STREAM = "close_mid_stream"  # half an answer, then the end of the connection
    SLOW = "slow"  # three seconds more to the first byte, ten times the time for each token


@dataclass(frozen=True, slots=True)
class Manners:
    """How a worker answers."""

    name: str = "demo"
    model: str = "demo"
    first_byte_s: float = 0.05
    token_s: float = 0.02
    fault: DemoFault | None = None
    fault_rate: float = 1.0


class DemoWorker:
    """The ASGI application of one worker; `chance` gives numbers from 0 to 1."""

    def __init__(self, manners: Manners, chance: Callable[[], float] = random.random) -> None:
        self._manners = manners
        self._chance = chance
        self._posts = {
            "/v1/chat/completions": self._chat,
            "/v1/embeddings": self._embeddings,
            "/v1/audio/speech": self._speech,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = _Call(scope, receive, send)
        if scope["path"] == "/health":
            await call.answer_json({"status": "ok", "worker": self._manners.name})
        elif scope["path"] == "/v1/models":
            await call.answer_json(models(self._manners.model))
        elif scope["method"] == "POST" and scope["path"] in self._posts:
            await self._post(call)
        else:
            await call.answer_json(error(f"there is no {scope['method']} {scope['path']} here"), status=404)

    async def _post(self, call: _Call) -> None:
        body = await call.body()
        fault = self._fault(call)
        if fault is DemoFault.ERROR_500:
            await call.answer_json(error("this worker was told to fail", "server_error"), status=500)
        elif fault is DemoFault.ERROR_429:
            refusal = error("this worker was told to be busy", "rate_limit_error")
            await call.answer_json(refusal, status=429, headers=[(b"retry-after", b"1")])
        elif fault is DemoFault.RESET:
            call.reset()
        elif fault is DemoFault.HANG:
            await call.until_gone()
        else:
            try:
                await self._posts[call.scope["path"]](call, _read_json(body), fault)
            except BadCall as problem:
                await call.answer_json(error(str(problem)), status=400)

    def _fault(self, call: _Call) -> DemoFault | None:
        if asked := call.header(b"x-demo-fault"):
            return DemoFault(asked) if asked in set(DemoFault) else None
        return self._manners.fault if self._chance() < self._manners.fault_rate else None

    async def _chat(self, call: _Call, asked: dict[str, Any], fault: DemoFault | None) -> None:
        first_byte_s, token_s = self._manners.first_byte_s, self._manners.token_s
        if fault is DemoFault.SLOW:
            first_byte_s, token_s = first_byte_s + _SLOW_FIRST_BYTE_S, token_s * _SLOW_FACTOR
        is_cut = fault is DemoFault.CLOSE_MID_STREAM
        if asked.get("stream") is True:
            events = list(chat_chunks(asked, self._manners.name))
            await asyncio.sleep(first_byte_s)
            await call.answer_events(events[: len(events) // 2] if is_cut else events, token_s, is_cut=is_cut)
        else:
            answer = chat(asked, self._manners.name)
            await asyncio.sleep(first_byte_s + token_s * answer["usage"]["completion_tokens"])
            await call.answer_json(answer, is_cut=is_cut)

    async def _embeddings(self, call: _Call, asked: dict[str, Any], fault: DemoFault | None) -> None:
        await self._whole(call, json.dumps(embeddings(asked)).encode(), _JSON, fault)

    async def _speech(self, call: _Call, asked: dict[str, Any], fault: DemoFault | None) -> None:
        await self._whole(call, speech(asked), b"audio/wav", fault)

    async def _whole(self, call: _Call, body: bytes, content_type: bytes, fault: DemoFault | None) -> None:
        await asyncio.sleep(self._manners.first_byte_s + (_SLOW_FIRST_BYTE_S if fault is DemoFault.SLOW else 0))
        await call.answer(body, content_type, is_cut=fault is DemoFault.CLOSE_MID_STREAM)


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except ValueError as problem:
        raise BadCall("the body is not JSON") from problem
    if not isinstance(asked, dict):
        raise BadCall("the body is not a JSON object")
    return asked


class _Call:
    """One HTTP exchange: its body read, its answer written, or its connection broken."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send

    def header(self, name: bytes) -> str | None:
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == name), None)

    async def body(self) -> bytes:
        pieces = []
        while True:
            message = await self._receive()
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer_json(
        self, answer: Any, *, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = (), is_cut: bool = False
    ) -> None:
        await self.answer(json.dumps(answer).encode(), _JSON, status=status, headers=headers, is_cut=is_cut)

    async def answer(
        self,
        body: bytes,
        content_type: bytes,
        *,
        status: int = 200,
        headers: Iterable[tuple[bytes, bytes]] = (),
        is_cut: bool = False,
    ) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [(b"content-type", content_type), length, *headers])
        await self._write(body[: len(body) // 2] if is_cut else body, is_last=not is_cut)
        if is_cut:
            self._transport.close()

    async def answer_events(self, events: Sequence[bytes], pause_s: float, *, is_cut: bool) -> None:
        await self._start(200, [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")])
        for event in events:
            await self._write(b"data: " + event + b"\n\n")
            await asyncio.sleep(pause_s)
        if is_cut:
            self._transport.close()
        else:
            await self._write(b"", is_last=True)

    def reset(self) -> None:
        """Ends the connection with a TCP reset."""
        linger = struct.pack("ii", 1, 0)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._transport.abort()

    @property
    def _transport(self) -> asyncio.Transport:
        transport: asyncio.Transport = self.scope["extensions"]["igw"]["transport"]
        return transport

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, body: bytes, *, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})


class TransportProtocol(HttpToolsProtocol):
    """uvicorn's protocol that lets the application reach the connection, to break it."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"igw": {"transport": self.transport}}


def main(arguments: Sequence[str]) -> int:
    """Serves until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="manage.py demo_worker", description="A worker for trying the gateway out.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--name", default="demo", help="what it calls itself in its answers")
    parser.add_argument("--model", default="demo", help="what /v1/models lists")
    parser.add_argument("--first-byte-ms", type=float, default=50)
    parser.add_argument("--token-ms", type=float, default=20)
    parser.add_argument("--fault", type=DemoFault, choices=list(DemoFault), metavar="|".join(DemoFault))
    parser.add_argument("--fault-rate", type=float, default=1.0, help="the share of calls that get the fault, 0 to 1")
    given = parser.parse_args(arguments)
    manners = Manners(
        given.name, given.model, given.first_byte_ms / 1000, given.token_ms / 1000, given.fault, given.fault_rate
    )
    config = uvicorn.Config(
        DemoWorker(manners),
        host=given.host,
        port=given.port,
        http=TransportProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,  # a hanging call must not hold up the end
    )
    server = uvicorn.Server(config)
    server.run()
    return 0 if server.started else 1
