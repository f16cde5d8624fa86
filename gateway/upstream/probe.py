"""One health probe: a GET, and whether its answer speaks for the worker. Thresholds are `routing/health`'s business.
What a worker says of its load is asked for in the same way.

Any 2xx is good. So is 429: a worker that says it is busy is not down. The verdict stands with the status line; the body
is read only so that the connection can be used again. Reasons hold no address and no secret.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from gateway.protocol.faults import Fault, FaultKind
from gateway.upstream.answer import Answer
from gateway.upstream.wire import Origin, Wire

BODY_LIMIT_BYTES = 65_536
BODY_S = 0.25  # a body that takes longer costs the connection, nothing else


@dataclass(frozen=True, slots=True)
class Probe:
    """What to ask of one worker. `url` is the worker's base address."""

    url: str
    path: str
    timeout_s: float
    credential: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    is_good: bool
    reason: str
    latency_ms: float


async def ask(wire: Wire, probe: Probe) -> Finding:
    """Carry out one probe. Never raises for what the worker does or leaves undone."""
    started = time.perf_counter()
    is_good, reason = False, f"no answer within {probe.timeout_s:g} s"
    try:
        async with asyncio.timeout(probe.timeout_s):
            answer = await _open(wire, probe)
    except TimeoutError:
        pass
    except Fault as fault:
        reason = _reason(fault, probe)
    else:
        is_good, reason = 200 <= answer.status < 300 or answer.status == 429, f"status {answer.status}"
    latency_ms = (time.perf_counter() - started) * 1000
    if is_good or reason.startswith("status"):
        await _finish(answer)
    return Finding(is_good, reason, round(latency_ms, 2))


async def fetch(wire: Wire, probe: Probe, limit_bytes: int) -> bytes | None:
    """The body that a worker answers with 200, within the probe's time; None: it does not. Never raises for it."""
    try:
        async with asyncio.timeout(probe.timeout_s):
            answer = await _open(wire, probe)
            try:
                if answer.status == 200:
                    return await answer.read(limit_bytes)
            finally:
                answer.close()
    except (Fault, TimeoutError):
        pass
    return None


async def _open(wire: Wire, probe: Probe) -> Answer:
    timeout_s = probe.timeout_s
    return await wire.open(
        Origin.of(probe.url), _request(probe), connect_s=timeout_s, first_byte_s=timeout_s, idle_s=timeout_s
    )


def _request(probe: Probe) -> bytes:
    parts = urlsplit(probe.url)
    base = parts.path.rstrip("/").removesuffix("/v1")
    target = quote(f"{base}/{probe.path.lstrip('/')}", safe="/?&=%:;,@!$'()*+-._~")
    lines = [f"GET {target} HTTP/1.1", f"host: {parts.netloc}", "accept: */*", "user-agent: igw-probe"]
    if probe.credential:
        lines.append(f"authorization: Bearer {probe.credential}")
    return "\r\n".join([*lines, "", ""]).encode()


def _reason(fault: Fault, probe: Probe) -> str:
    cause = fault.__cause__
    if fault.kind is FaultKind.CONNECT_FAILED:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, TimeoutError):
            return f"no connection within {probe.timeout_s:g} s"
        return "TLS handshake failed" if isinstance(cause, ssl.SSLError) else "connection failed"
    if fault.kind is FaultKind.UPSTREAM_RESET:
        return "connection closed without an answer"
    if fault.kind is FaultKind.UPSTREAM_PROTOCOL:
        return "not a valid HTTP answer"
    return f"no answer within {probe.timeout_s:g} s"


async def _finish(answer: Answer) -> None:
    try:
        async with asyncio.timeout(BODY_S):
            await answer.read(BODY_LIMIT_BYTES)
    except (Fault, TimeoutError):
        pass
    finally:
        answer.close()
