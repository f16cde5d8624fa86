"""Log lines: one JSON object a line, with secrets masked wherever they stand.

`JsonFormatter` serves the standard library's loggers. `CallLog` takes the one line that every call leaves: the call
only appends to a queue, and a thread of its own encodes and writes the batches, so that a blocked stderr stops no call.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

_BETWEEN = r"""(?:["']\s*,\s*b?["']|["']?\s*[:=]\s*b?["']?)"""  # name and value as header, assignment, JSON or tuple
_SECRET_NAME = r"(?:api[_-]?key|token|secret|passw(?:or)?d|credential|signature)"
# What stays is the first group.
_SECRETS = (
    re.compile(r"(?<![A-Za-z0-9])(sk-)[\w-]+"),
    re.compile(r"""(?i)\b((?:bearer|basic)(?:\s|%20|\+)+)[^\s"'\\,;<>]+"""),
    re.compile(rf"""(?i)((?:authorization|cookie){_BETWEEN})[^"'\r\n]+"""),
    re.compile(rf"""(?i)({_SECRET_NAME}{_BETWEEN})[^\s"'\\&,;<>]+"""),
    re.compile(r"""(?i)([?&;][\w.-]*(?:key|sig)=)[^\s"'\\&#]+"""),
    re.compile(r"""(://)(?:[^\s/@]+|[^\s/@:]*:[^\s"']+)(?=@)"""),
)
# Lower-case; one is in every text that a pattern matches. To look for these first makes a call line cheap.
_MARKS = (
    *(
        "sk-",
        "bearer",
        "basic",
        "authorization",
        "cookie",
        "api",
        "token",
        "secret",
        "passw",
        "credential",
        "signature",
    ),
    *("key=", "sig=", "://"),
)
_PLAIN = frozenset((int, float, bool, type(None)))
_MASK = "***"
_SECRET_FIELD = re.compile(rf"(?i)(?:.*[_-])?(?:authorization|cookie|{_SECRET_NAME})")
_DEPTH_LIMIT = 6  # of nested fields; what lies deeper is written as text
_INTERVAL_S = 0.25
_BATCH_LINES = 512
_PIPE_BYTES = 4096  # a write of so much to a pipe is not mixed with those of other processes (POSIX, PIPE_BUF)


def mask(text: str) -> str:
    """The text with `***` for API keys, credentials of headers and URLs, cookies, and values given to secret names."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1***", text)
    return text


class JsonFormatter(logging.Formatter):
    """One JSON object of a record: time, level, logger, message, then the fields given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask(record.getMessage()),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line.update((name, value) for name, value in _masked(fields, 0).items() if name not in line)
        if record.exc_info:
            line["exception"] = mask(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = mask(record.stack_info)
        return _json(line).decode()


class CallLog:
    """The lines of finished calls, one JSON object each.

    `run` keeps the writing thread; `write` gets whole lines, 4 KB together or one longer line, and may block.
    Beyond `limit_lines` unwritten lines further ones are dropped; how many is written as a line of its own.
    """

    def __init__(self, write: Callable[[bytes], object] | None = None, limit_lines: int = 20_000) -> None:
        self.dropped = 0
        self._limit_lines = limit_lines
        self._write = write or _write_stderr
        self._lines: deque[tuple[float, dict[str, Any]]] = deque()
        self._wake = threading.Event()
        self._is_closing = False
        # A daemon: a stderr that nobody reads must not keep the process from its end.
        self._thread = threading.Thread(target=self._work, name="call-log", daemon=True)

    def append(self, fields: dict[str, Any]) -> None:
        """Take one call's fields (texts, numbers, None), which must not change afterwards."""
        lines = self._lines
        if len(lines) >= self._limit_lines:
            self.dropped += 1
            return
        lines.append((time.time(), fields))
        if len(lines) == _BATCH_LINES:
            self._wake.set()

    async def run(self) -> None:
        """Write every 250 ms or 512 lines, until `close`; being cancelled ends the wait, not the writing."""
        self._thread.start()
        await asyncio.get_running_loop().create_future()

    async def close(self, deadline_s: float = 2.0) -> None:
        """Write what is left, and return when that is done or the deadline has passed."""
        self._is_closing = True
        self._wake.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, deadline_s)

    def _work(self) -> None:
        told = 0
        while True:
            is_last = self._is_closing
            if not is_last:
                self._wake.wait(_INTERVAL_S)
                self._wake.clear()
            if self.dropped != told:
                fields = {"dropped": self.dropped - told}
                told = self.dropped
                self._send([_call_line(time.time(), "warning", "call lines dropped", fields)])
            while self._lines:
                batch = [self._lines.popleft() for _ in range(min(_BATCH_LINES, len(self._lines)))]
                self._send([_call_line(at_unix_s, "info", "call", fields) for at_unix_s, fields in batch])
            if is_last:
                return

    def _send(self, lines: list[bytes]) -> None:
        piece = b""
        for line in lines:
            if piece and len(piece) + len(line) > _PIPE_BYTES:
                self._write(piece)
                piece = b""
            piece += line
        self._write(piece)


def _call_line(at_unix_s: float, level: str, message: str, fields: dict[str, Any]) -> bytes:
    head = {"time": _utc(at_unix_s), "level": level, "logger": "igw.call", "message": message}
    line = {**head, **fields, **head}
    # The fields are ours, but not all of their values: the request id and the model are what the client sent.
    texts = "\n".join(
        [value if type(value) is str else str(value) for value in fields.values() if type(value) not in _PLAIN]
    )
    texts = texts.lower()
    return _json(_masked(line, 0) if any(mark in texts for mark in _MARKS) else line) + b"\n"


def _masked(value: Any, depth: int) -> Any:
    """The value as JSON types, masked: texts by their content, the values of telling names whole."""
    if isinstance(value, str):
        return mask(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < _DEPTH_LIMIT and isinstance(value, dict):
        names = {name: mask(str(name)) for name in value}
        return {
            names[name]: _MASK if _SECRET_FIELD.fullmatch(names[name]) else _masked(inner, depth + 1)
            for name, inner in value.items()
        }
    if depth < _DEPTH_LIMIT and isinstance(value, (list, tuple, set, frozenset)):
        return [_masked(inner, depth + 1) for inner in value]
    return mask(str(value))


def _json(line: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(line)
    except (UnicodeEncodeError, OverflowError, TypeError):
        # Of a call's fields: a lone surrogate, a huge number, an object.
        return json.dumps(line, default=str).encode()


def _utc(unix_s: float) -> str:
    whole_s = int(unix_s)
    return f"{_second(whole_s)}.{int((unix_s - whole_s) * 1000):03d}Z"


@functools.lru_cache(4)
def _second(unix_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_s))


def _write_stderr(data: bytes) -> None:
    """All of `data` to the descriptor, past sys.stderr's lock: a blocked write must not hold it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(2, view) :]
    except OSError:  # nobody reads any more; there is no other place to say so
        return
