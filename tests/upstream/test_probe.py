from __future__ import annotations

import socket

import pytest

from gateway.upstream.probe import Finding, Probe, ask
from gateway.upstream.wire import Wire
from tests.fakes.scripts import Close, Script, Stall, chat, cut_after, raw, status
from tests.fakes.worker import FakeWorker

SILENT = raw(b"", Stall())


async def finding(wire: Wire, worker: FakeWorker, script: Script, **options: object) -> tuple[bool, str]:
    """What a probe of a worker that answers so finds; `/probe` takes scripts, `/health` does not."""
    worker.next(script)
    found = await ask(wire, Probe(worker.url, "/probe", 0.3, **options))
    return found.is_good, found.reason


@pytest.mark.parametrize(
    ("script", "is_good", "reason"),
    [
        (status(200), True, "status 200"),
        (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), True, "status 204"),
        (status(429), True, "status 429"),
        (status(404), False, "status 404"),
        (status(302), False, "status 302"),
        (status(503), False, "status 503"),
        (raw(b"", Close()), False, "connection closed without an answer"),
        (raw(b"hello\r\n\r\n"), False, "not a valid HTTP answer"),
        (SILENT, False, "no answer within 0.3 s"),
        (cut_after(150, chat("x" * 500), Stall()), True, "status 200"),  # the verdict stands before the body
    ],
)
async def test_probe_says_what_the_worker_answered(
    wire: Wire, worker: FakeWorker, script: Script, is_good: bool, reason: str
) -> None:
    assert await finding(wire, worker, script) == (is_good, reason)
    worker.errors.clear()


async def test_probe_of_a_closed_port_is_refused(wire: Wire) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = await ask(wire, Probe(f"http://127.0.0.1:{taken.getsockname()[1]}", "/health", 1))
    assert found == Finding(False, "connection refused", found.latency_ms)


async def test_probe_of_an_address_that_may_not_be_dialled_fails_without_naming_it(wire: Wire) -> None:
    found = await ask(wire, Probe("http://169.254.169.254", "/health", 1))
    assert (found.is_good, found.reason) == (False, "connection failed")


async def test_probes_of_one_worker_share_a_connection(wire: Wire, worker: FakeWorker) -> None:
    for _ in range(3):
        assert await finding(wire, worker, status(200, body=b"fine")) == (True, "status 200")
    assert worker.connections == 1


@pytest.mark.parametrize(
    ("base", "target"), [("", "/probe?deep=1"), ("/v1", "/probe?deep=1"), ("/models/a/v1/", "/models/a/probe?deep=1")]
)
async def test_probe_asks_the_server_below_its_base_path(
    wire: Wire, worker: FakeWorker, base: str, target: str
) -> None:
    worker.next(status(200))
    await ask(wire, Probe(worker.url + base, "/probe?deep=1", 1, credential="sk-worker"))
    (request,) = worker.requests
    assert (request.method, request.path) == ("GET", target)
    assert request.header("host") == worker.url.removeprefix("http://")
    assert request.header("authorization") == "Bearer sk-worker"
