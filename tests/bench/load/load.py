"""Load generator: every mode is bounded in count and time and prints one JSON object.

  load.py http   URL -c 16 --seconds 4            closed loop, non-streaming, by wrk
  load.py stream URL -c 16 --seconds 5            closed loop of SSE streams, every stream checked
  load.py steady URL --rate 100 --seconds 12      open loop, non-streaming, a timeline of the errors

Needs wrk (http), and uvloop and httptools (stream, steady).
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
MARK = re.compile(rb"@(\d{4}):(\d{16})@")  # what fake_upstream puts into every content event


def chat_body(size: int, stream: bool, model: str) -> bytes:
    """A chat request of about `size` bytes."""
    body = {
        "model": model,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": ""},
        ],
        "max_tokens": 128,
        "temperature": 0.7,
        "stream": stream,
    }
    words = "the quick brown fox jumps over the lazy dog, and then it rests a while. "
    missing = max(0, size - len(json.dumps(body)))
    body["messages"][1]["content"] = (words * (missing // len(words) + 1))[:missing]
    return json.dumps(body).encode()


def percentiles(values, prefix="", scale=1.0) -> dict:
    if not values:
        return {}
    v = sorted(values)
    pick = lambda q: round(v[min(len(v) - 1, int(q * len(v)))] * scale, 4)  # noqa: E731
    return {f"{prefix}p50_ms": pick(0.50), f"{prefix}p95_ms": pick(0.95), f"{prefix}p99_ms": pick(0.99)}


# ---- http: wrk ---------------------------------------------------------------------------------


def run_http(a) -> dict:
    body_file = Path(a.tmp) / f"body-{os.getpid()}.json"
    body_file.write_bytes(chat_body(a.body_bytes, False, a.model))
    env = dict(os.environ, BODY_FILE=str(body_file), HEADERS="\n".join(a.header), MAX_REQUESTS=str(a.max_requests))
    cmd = ["wrk", "-t1", f"-c{a.c}", f"-d{a.seconds:g}s", "--timeout", "10s", "-s", str(HERE / "wrk_report.lua"), a.url]
    try:
        out = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=a.seconds + 30).stdout
    finally:
        body_file.unlink()
    return json.loads(next(line for line in out.splitlines() if line.startswith("JSON "))[5:])


# ---- a small keep-alive HTTP/1.1 client ---------------------------------------------------------


class Connection(asyncio.Protocol):
    """One request at a time; `finished` gets (error or None) when the answer is complete."""

    def __init__(self):
        self.transport = None
        self.finished = None
        self.on_data = None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exc):
        self.transport = None
        self._finish("connection lost")

    def request(self, raw: bytes, on_data) -> asyncio.Future:
        import httptools

        self.parser = httptools.HttpResponseParser(self)
        self.finished = asyncio.get_running_loop().create_future()
        self.on_data, self.keep = on_data, True
        self.transport.write(raw)
        return self.finished

    def data_received(self, data):
        self.now = time.monotonic_ns()
        try:
            self.parser.feed_data(data)
        except Exception as e:  # a broken answer
            self._finish(f"parse: {type(e).__name__}")
            if self.transport:
                self.transport.close()

    def on_body(self, body):
        self.on_data(self.now, body)

    def on_message_complete(self):
        status = self.parser.get_status_code()
        self.keep = self.parser.should_keep_alive()
        self._finish(None if status == 200 else f"status {status}")

    def _finish(self, error):
        if self.finished and not self.finished.done():
            self.finished.set_result(error)


class Target:
    def __init__(self, url: str, headers: list[str], body: bytes):
        u = urlsplit(url)
        self.host, self.port = u.hostname, u.port
        if self.host not in ("127.0.0.1", "localhost"):
            sys.exit("this load generator only talks to this machine")
        lines = [f"POST {u.path} HTTP/1.1", f"Host: {u.netloc}", "Content-Type: application/json", "Accept: */*"]
        lines += [*headers, f"Content-Length: {len(body)}"]
        self.raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, self.host, self.port))[1]


# ---- stream -------------------------------------------------------------------------------------


class StreamCheck:
    """Order, count and timing of the events of one stream."""

    __slots__ = ("sent", "first", "seen", "ordered", "tail", "done", "delivery")

    def __init__(self, delivery):
        self.sent, self.first, self.seen, self.ordered = time.monotonic_ns(), 0, 0, True
        self.tail, self.done, self.delivery = b"", False, delivery

    def feed(self, now, body):
        data = self.tail + body if self.tail else body
        end = 0
        for m in MARK.finditer(data):
            self.ordered &= int(m[1]) == self.seen
            self.seen += 1
            self.delivery.append(now - int(m[2]))
            end = m.end()
        if self.seen and not self.first:
            self.first = now
        self.done = self.done or b"data: [DONE]" in data
        self.tail = data[max(end, len(data) - 40) :]

    def verdict(self, error, chunks):
        if error:
            return error
        if not self.done:
            return "no [DONE]"
        if self.seen != chunks:
            return f"{self.seen} events instead of {chunks}"
        return None if self.ordered else "events out of order"


async def run_stream(a) -> dict:
    target = Target(a.url, a.header, chat_body(a.body_bytes, True, a.model))
    ttft, total, delivery = array("q"), array("q"), array("q")
    problems: dict[str, int] = {}
    started = ok = 0
    begin = time.monotonic()
    stop_at = begin + a.seconds

    async def worker(i):
        nonlocal started, ok
        conn = None
        await asyncio.sleep(a.ramp * i / a.c)
        while time.monotonic() < stop_at and started < a.max_requests:
            started += 1
            check = None
            try:
                if conn is None or conn.transport is None or not conn.keep:
                    if conn and conn.transport:
                        conn.transport.close()
                    conn = await target.connect()
                    conn.keep = True
                check = StreamCheck(delivery)
                problem = check.verdict(await asyncio.wait_for(conn.request(target.raw, check.feed), 30), a.chunks)
            except (TimeoutError, OSError) as e:
                problem = type(e).__name__
                if conn and conn.transport:
                    conn.transport.abort()
                conn = None
            now = time.monotonic_ns()
            if problem:
                problems[problem] = problems.get(problem, 0) + 1
                await asyncio.sleep(0.05)
            else:
                ok += 1
                ttft.append(check.first - check.sent)
                total.append(now - check.sent)
        if conn and conn.transport:
            conn.transport.close()

    await asyncio.gather(*(worker(i) for i in range(a.c)))
    seconds = time.monotonic() - begin
    return {
        "requests": started,
        "ok": ok,
        "errors": started - ok,
        "problems": problems,
        "seconds": round(seconds, 3),
        "rps": round(ok / seconds, 2),
        "events": len(delivery),
        "events_per_s": round(len(delivery) / seconds, 1),
        **percentiles(total, "", 1e-6),
        **percentiles(ttft, "ttft_", 1e-6),
        **percentiles(delivery, "delivery_", 1e-6),
    }


# ---- steady -------------------------------------------------------------------------------------


async def run_steady(a) -> dict:
    target = Target(a.url, a.header, chat_body(a.body_bytes, False, a.model))
    idle: list[Connection] = []
    latencies, errors = [], []
    begin = time.monotonic()

    async def one(offset):
        conn = None
        t0 = time.monotonic()
        try:
            while idle and conn is None:
                conn = idle.pop()
                if conn.transport is None or not conn.keep or conn.transport.is_closing():
                    conn = None
            conn = conn or await target.connect()
            size = 0

            def count(_now, body):
                nonlocal size
                size += len(body)

            problem = await asyncio.wait_for(conn.request(target.raw, count), a.timeout)
            if problem is None and size < 500:
                problem = "short body"
        except (TimeoutError, OSError) as e:
            problem = type(e).__name__
            if conn and conn.transport:
                conn.transport.abort()
        else:
            idle.append(conn)
        if problem:
            errors.append((round(offset, 2), problem))
        else:
            latencies.append(time.monotonic() - t0)

    tasks = []
    for i in range(min(a.max_requests, int(a.rate * a.seconds))):
        due = i / a.rate
        delay = begin + due - time.monotonic()
        if delay > 0:
            await asyncio.sleep(delay)
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    for conn in idle:
        if conn.transport:
            conn.transport.close()
    kinds: dict[str, int] = {}
    for _, kind in errors:
        kinds[kind] = kinds.get(kind, 0) + 1
    return {
        "requests": len(tasks),
        "errors": len(errors),
        "problems": kinds,
        "first_error_s": min((t for t, _ in errors), default=None),
        "last_error_s": max((t for t, _ in errors), default=None),
        "seconds": round(time.monotonic() - begin, 3),
        "max_ms": round(max(latencies, default=0) * 1000, 1),
        **percentiles(latencies, "", 1000.0),
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mode", choices=["http", "stream", "steady"])
    p.add_argument("url")
    p.add_argument("-c", type=int, default=1, help="concurrency")
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--max-requests", type=int, default=1_000_000)
    p.add_argument("--body-bytes", type=int, default=1024)
    p.add_argument("--model", default="fake")
    p.add_argument("--header", action="append", default=[], help='"Name: value", may be repeated')
    p.add_argument("--chunks", type=int, default=64, help="stream: events that each stream must have")
    p.add_argument("--ramp", type=float, default=0.0, help="stream: spread the first requests over so many seconds")
    p.add_argument("--rate", type=float, default=100, help="steady: requests per second")
    p.add_argument("--timeout", type=float, default=10, help="steady: seconds for one request")
    p.add_argument("--tmp", default=tempfile.gettempdir(), help="http: where the body's file is put")
    a = p.parse_args()
    if a.mode == "http":
        result = run_http(a)
    else:
        import uvloop

        result = uvloop.run((run_stream if a.mode == "stream" else run_steady)(a))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
