"""What a fake worker does with one request: a list of steps, and builders of the usual answers and of wrong ones.

chat("hello")                                  chat_stream(["a", "b"], usage=(3, 2), gap_s=0.01)
status(429, headers={"Retry-After": "1"})      raw(b"HTTP/1.1 ...", Close())
cut_after(120, chat_stream(["a", "b"]))        one_byte_at_a_time(chat("x"))        split_at(40, chat("x"))
wrong_framing("both lengths")                  Script([Stall()])   Script([Reset()])   early(status(413))
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Send:
    """Write, and wait until the peer takes it."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when the event is set; a threading.Event may be set from any thread."""

    event: asyncio.Event | threading.Event


@dataclass(frozen=True, slots=True)
class Close:
    """An orderly end of the connection (FIN)."""


@dataclass(frozen=True, slots=True)
class Reset:
    """A rough one (RST)."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing more, until the peer goes away."""


Step = Send | Pause | Wait | Close | Reset | Stall


@dataclass(frozen=True, slots=True)
class Script:
    """Steps carried out after the request was read; the connection is kept unless one of them ends it.

    `reads_body` False starts them after the request's head and leaves the body unread; `read_bytes_per_s` slows the
    reading of the body down.
    """

    steps: Sequence[Step]
    reads_body: bool = True
    read_bytes_per_s: float | None = None

    @property
    def data(self) -> bytes:
        """All that it would send."""
        return b"".join(step.data for step in self.steps if isinstance(step, Send))


def raw(data: bytes, *then: Step) -> Script:
    """These bytes."""
    return Script([Send(data), *then])


def status(
    code: int,
    headers: Mapping[str, str] | None = None,
    body: bytes = b'{"error":{"message":"no","type":"server_error","param":null,"code":null}}',
    content_type: str = "application/json",
) -> Script:
    """A whole answer with a length."""
    lines = [f"HTTP/1.1 {code} Fake", f"content-type: {content_type}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def chat(
    text: str = "hello", *, usage: tuple[int, int] | None = (5, 1), model: str = "fake", delay_s: float = 0.0
) -> Script:
    """A whole chat completion; `usage` is (prompt tokens, completion tokens)."""
    message = {"role": "assistant", "content": text}
    answer = _chat_object("chat.completion", model, [{"index": 0, "message": message, "finish_reason": "stop"}], usage)
    whole = status(200, body=json.dumps(answer).encode())
    return Script([Pause(delay_s), *whole.steps]) if delay_s else whole


def chat_stream(
    pieces: Sequence[str] = ("hel", "lo"),
    *,
    usage: tuple[int, int] | None = None,
    gap_s: float = 0.0,
    done: bool = True,
    finish: bool = True,
    model: str = "fake",
) -> Script:
    """A chat event stream, one chunk and one write an event; with `usage` a usage chunk precedes [DONE]."""
    kind = "chat.completion.chunk"
    events = []
    for number, piece in enumerate(pieces):
        delta = {"role": "assistant", "content": piece} if number == 0 else {"content": piece}
        events.append(_chat_object(kind, model, [{"index": 0, "delta": delta, "finish_reason": None}], None))
    if finish:
        events.append(_chat_object(kind, model, [{"index": 0, "delta": {}, "finish_reason": "stop"}], None))
    if usage is not None:
        events.append(_chat_object(kind, model, [], usage))
    return events_stream([json.dumps(event) for event in events] + ["[DONE]"] * done, gap_s=gap_s)


def events_stream(data: Sequence[str], *, gap_s: float = 0.0) -> Script:
    """An event stream with this data, one chunk and one write an event."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    steps: list[Step] = [Send(head)]
    for text in data:
        steps += [Pause(gap_s), Send(chunk(f"data: {text}\n\n".encode()))]
    return Script([*steps, Send(b"0\r\n\r\n")])


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of the chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _chat_object(
    kind: str, model: str, choices: list[dict[str, object]], usage: tuple[int, int] | None
) -> dict[str, object]:
    answer: dict[str, object] = {"id": "chatcmpl-1", "object": kind, "created": 1, "model": model, "choices": choices}
    if usage is not None:
        prompt, completion = usage
        total = prompt + completion
        answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return answer


def early(script: Script) -> Script:
    """The same before the request's body is read, and then the end of the connection."""
    return Script([*script.steps, Close()], reads_body=False)


def cut_after(n_bytes: int, script: Script, end: Close | Reset | Stall = Close()) -> Script:
    """The same script, ended after `n_bytes`."""
    steps: list[Step] = []
    for step in script.steps:
        if isinstance(step, Send):
            steps.append(Send(step.data[:n_bytes]))
            n_bytes -= len(step.data)
            if n_bytes <= 0:
                break
        else:
            steps.append(step)
    return replace(script, steps=[*steps, end])


def one_byte_at_a_time(script: Script) -> Script:
    """The same bytes, each in its own write, without other steps."""
    return replace(script, steps=[step for byte in script.data for step in (Send(bytes([byte])), Pause())])


def split_at(n_bytes: int, script: Script) -> Script:
    """The same bytes in two writes, without other steps."""
    return replace(script, steps=[Send(script.data[:n_bytes]), Pause(), Send(script.data[n_bytes:])])


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"transfer-encoding: chunked\r\n"
_CL2 = b"content-length: 2\r\n"

# Answers that are not valid, or more than a client should take, each with what is wrong about it.
WRONG_FRAMING: dict[str, bytes] = {
    "not http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "tls alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "rtsp": b"RTSP/1.0 200 OK\r\n" + _CL2 + b"\r\nhi",
    "icy": b"ICY 200 OK\r\n\r\nhi",
    "blank lines first": b"\r\n\r\n" + _OK + _CL2 + b"\r\nhi",
    "http 2 status line": b"HTTP/2.0 200 OK\r\n" + _CL2 + b"\r\nhi",
    "http 0.9 status line": b"HTTP/0.9 200 OK\r\n" + _CL2 + b"\r\nhi",
    "two spaces in the status line": b"HTTP/1.1  200 OK\r\n" + _CL2 + b"\r\nhi",
    "status of two digits": b"HTTP/1.1 20 OK\r\n" + _CL2 + b"\r\nhi",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n" + _CL2 + b"\r\nhi",
    "status 099": b"HTTP/1.1 099 OK\r\n" + _CL2 + b"\r\nhi",
    "status 999": b"HTTP/1.1 999 OK\r\n" + _CL2 + b"\r\nhi",
    "switching protocols": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhi",
    "both lengths": _OK + _CL2 + b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "both lengths, chunked first": _CHUNKED + _CL2 + b"\r\n2\r\nhi\r\n0\r\n\r\n",
    "two equal lengths": _OK + _CL2 + _CL2 + b"\r\nhi",
    "two lengths": _OK + _CL2 + b"content-length: 3\r\n\r\nhi!",
    "list of lengths": _OK + b"content-length: 2, 2\r\n\r\nhi",
    "signed length": _OK + b"content-length: +2\r\n\r\nhi",
    "negative length": _OK + b"content-length: -2\r\n\r\nhi",
    "hexadecimal length": _OK + b"content-length: 0x2\r\n\r\nhi",
    "empty length": _OK + b"content-length:\r\n\r\nhi",
    "length overflow": _OK + b"content-length: 99999999999999999999999\r\n\r\nhi",
    "unknown coding": _OK + b"transfer-encoding: gzip\r\n\r\nhi",
    "two codings": _OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "chunked twice": _OK + b"transfer-encoding: chunked, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "chunked, then identity": _CHUNKED + b"transfer-encoding: identity\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "folded header": _OK + b"x: a\r\n b\r\n" + _CL2 + b"\r\nhi",
    "space before the colon": _OK + b"x : a\r\n" + _CL2 + b"\r\nhi",
    "header without a colon": _OK + b"nonsense\r\n" + _CL2 + b"\r\nhi",
    "header without a name": _OK + b": a\r\n" + _CL2 + b"\r\nhi",
    "nul in a header": _OK + b"x: a\x00b\r\n" + _CL2 + b"\r\nhi",
    "bare newlines": b"HTTP/1.1 200 OK\ncontent-length: 2\n\nhi",
    "chunk size with a prefix": _CHUNKED + b"\r\n0x2\r\nhi\r\n0\r\n\r\n",
    "negative chunk size": _CHUNKED + b"\r\n-2\r\nhi\r\n0\r\n\r\n",
    "chunk size overflow": _CHUNKED + b"\r\n" + b"f" * 17 + b"\r\nhi\r\n0\r\n\r\n",
    "chunk longer than said": _CHUNKED + b"\r\n2\r\nhi!\r\n0\r\n\r\n",
    "chunks with bare newlines": _CHUNKED + b"\r\n2\nhi\n0\n\n",
    "bytes after the end": _OK + _CL2 + b"\r\nhi" + b"more",
    "second answer": (_OK + _CL2 + b"\r\nhi") * 2,
    "bytes after a closing answer": _OK + b"connection: close\r\n" + _CL2 + b"\r\nhi" + b"more",
    "body with 204": b"HTTP/1.1 204 No Content\r\n" + _CL2 + b"\r\nhi",
    "101 headers": _OK + b"x: a\r\n" * 101 + _CL2 + b"\r\nhi",
    "head of 70 KiB": _OK + b"x: " + b"a" * 71_680 + b"\r\n" + _CL2 + b"\r\nhi",
    "endless head": _OK + b"x: " + b"a" * 300_000,
    "endless trailers": _CHUNKED + b"\r\n2\r\nhi\r\n0\r\n" + b"x: a\r\n" * 60_000,
    "endless chunk extension": _CHUNKED + b"\r\n2;" + b"a" * 300_000,
    "endless interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 12_000,
}


def wrong_framing(kind: str) -> Script:
    """One of `WRONG_FRAMING`; the connection stays open, so that an end does not hide the error."""
    return raw(WRONG_FRAMING[kind])
