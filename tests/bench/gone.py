"""How long after a client leaves its worker's connection is closed, in six phases, with streams running beside it.

  gone.py [--streams 200] [--tries 50]

Starts stores, the gateway and a fake worker of its own; prints median, p99 and maximum in milliseconds for each phase.
The figure counts from the client's close to the end that the worker sees, so it holds the worker's own delay too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from igw import stores  # noqa: E402

from tests.fakes.scripts import Script, Send, Stall, chat_stream  # noqa: E402
from tests.fakes.worker import FakeWorker, Request  # noqa: E402

_PORT = 29050
_KEY = f"sk-bench-{secrets.token_urlsafe(32)}"
_HEAD = Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
_SILENT = Script([*chat_stream(["a", "b"]).steps[:3], Stall()])
_FLOWING = chat_stream(["a"] * 10_000, gap_s=0.02)
_PHASES: dict[str, tuple[bool, Script, int]] = {  # is it streamed, what the worker does, events read before leaving
    "not streamed": (False, Script([Stall()]), 0),
    "before the head": (True, Script([Stall()]), 0),
    "before the first event": (True, Script([_HEAD, Stall()]), 0),
    "silent": (True, _SILENT, 1),
    "flowing": (True, _FLOWING, 5),
}


def answer(request: Request) -> Script:
    """What the request's own text names."""
    return _PHASES[json.loads(request.body)["messages"][0]["content"]][1]


async def call(phase: str, reads: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A call in the middle of its phase."""
    body = {"model": "m", "messages": [{"role": "user", "content": phase}], "stream": _PHASES[phase][0]}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", _PORT)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {_KEY}\r\n"
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
    for _ in range(reads):
        await reader.readuntil(b"\n\n")
    return reader, writer


async def drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def measure(worker: FakeWorker, phase: str, tries: int) -> list[float]:
    reads = _PHASES[phase][2]
    took_ms = []
    for _ in range(tries):
        seen, closed = len(worker.requests), len(worker.closed_by_peer)
        _, writer = await call(phase, reads)
        await worker.until(lambda seen=seen: len(worker.requests) > seen)
        await asyncio.sleep(0.005)
        left_s = time.monotonic()
        writer.transport.abort()
        await worker.until(lambda closed=closed: len(worker.closed_by_peer) > closed)
        took_ms.append((worker.closed_by_peer[-1].at_s - left_s) * 1000)
    return sorted(took_ms)


async def run(streams: int, tries: int) -> None:
    async with FakeWorker(answer, port=_PORT + 1) as worker:
        await worker.until(lambda: worker.health_requests or _is_up(), 30)
        beside = [await call("flowing", 0) for _ in range(streams)]
        reading = [asyncio.create_task(drain(reader)) for reader, _ in beside]
        print(f"{streams} streams of 50 events a second beside, {tries} tries a phase; milliseconds")
        for phase in _PHASES:
            took = await measure(worker, phase, tries)
            print(f"  {phase:<24} median {statistics.median(took):6.2f}   p99 {took[int(len(took) * 0.99) - 1]:6.2f}"
                  f"   max {took[-1]:6.2f}", flush=True)  # fmt: skip
        for _, writer in beside:
            writer.transport.abort()
        await asyncio.gather(*reading, return_exceptions=True)


def _is_up() -> bool:
    return subprocess.run(["curl", "-sf", f"http://127.0.0.1:{_PORT}/live"], capture_output=True).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tries", type=int, default=50)
    options = parser.parse_args()
    state = Path(tempfile.mkdtemp(prefix="igw-gone-"))
    state.chmod(0o711)
    try:
        with stores(state, 1) as urls:
            own = {"IGW_STATE_DIR": str(state), "IGW_SECRET_KEYS": secrets.token_urlsafe(32), "IGW_PORT": str(_PORT)}
            os.environ.update(urls, **own, IGW_BENCH_KEY=_KEY)
            manage = [sys.executable, str(ROOT / "manage.py")]
            subprocess.run([*manage, "migrate", "--noinput", "-v0"], check=True)
            worker = f'[{{name: w, url: "http://127.0.0.1:{_PORT + 1}"}}]'
            (state / "gone.yaml").write_text(
                'version: 1\nteams: [{name: t, keys: [{name: k, key: "env:IGW_BENCH_KEY"}]}]\n'
                f"pools: [{{model: m, workers: {worker}}}]\n"
            )
            subprocess.run([*manage, "apply", str(state / "gone.yaml")], check=True, stdout=subprocess.DEVNULL)
            with (state / "gateway.log").open("wb") as log:
                gateway = subprocess.Popen([*manage, "serve"], stdout=log, stderr=log)
            try:
                asyncio.run(run(options.streams, options.tries))
            finally:
                gateway.terminate()
                gateway.wait(30)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
