from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from gateway.protocol.loads import LIMIT_BYTES
from gateway.routing.worker import LoadReport
from gateway.upstream.egress import Egress
from gateway.upstream.probe import Probe
from gateway.upstream.wire import Wire
from tests.fakes.scripts import Script, Stall, raw, status
from tests.fakes.worker import FakeWorker, Request
from workers.loads import PAUSE_S, LoadReader

LOADS, GET_LOAD, METRICS = "/v1/loads?include=core", "/get_load", "/metrics"
ANSWERS = {
    LOADS: b'{"loads": [{"num_running_reqs": 1}]}',
    GET_LOAD: b'[{"num_reqs": 3, "num_waiting_reqs": 1}]',
    METRICS: b'vllm:num_requests_running{engine="0"} 5.0\n',
}


class Engine:
    """A worker that knows some of the sources."""

    def __init__(self, wire: Wire, worker: FakeWorker, *known: str) -> None:
        self.known = set(known)
        self.reader = LoadReader()
        self._wire, self._worker = wire, worker
        worker.default = self._answer

    def _answer(self, request: Request) -> Script:
        return status(200, body=ANSWERS[request.path]) if request.path in self.known else status(404)

    async def read(self, now: float = 0.0) -> tuple[LoadReport | None, list[str]]:
        """What was read, and the paths that were asked for it."""
        before = len(self._worker.requests)
        report = await self.reader.read(self._wire, Probe(self._worker.url, "/health", 0.3, "secret"), now)
        return report, [request.path for request in self._worker.requests[before:]]


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = Wire(egress=Egress())
    yield wire
    await wire.close()


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


async def test_source_that_answers_is_found_and_remembered(wire: Wire, worker: FakeWorker) -> None:
    engine = Engine(wire, worker, METRICS)
    report, asked = await engine.read()
    assert report is not None
    assert (report, asked) == (LoadReport(report.at_unix_s, running=5), [LOADS, GET_LOAD, METRICS])
    assert (await engine.read())[1] == [METRICS]
    assert (engine.reader.wants(0.0), worker.requests[0].header("authorization")) == (True, "Bearer secret")


async def test_source_that_stops_working_lets_all_be_tried_again(wire: Wire, worker: FakeWorker) -> None:
    engine = Engine(wire, worker, GET_LOAD)
    await engine.read()
    engine.known = {LOADS}
    report, asked = await engine.read()
    assert report is not None
    assert (report, asked) == (LoadReport(report.at_unix_s, running=1), [GET_LOAD, METRICS, LOADS])
    assert (await engine.read())[1] == [LOADS]


async def test_worker_without_a_source_is_asked_once_a_minute(wire: Wire, worker: FakeWorker) -> None:
    engine = Engine(wire, worker)
    assert await engine.read(0.0) == (None, [LOADS, GET_LOAD, METRICS])
    assert (engine.reader.wants(PAUSE_S - 0.1), engine.reader.wants(PAUSE_S)) == (False, True)
    assert await engine.read(PAUSE_S) == (None, [LOADS])
    assert (engine.reader.wants(2 * PAUSE_S - 0.1), engine.reader.wants(2 * PAUSE_S)) == (False, True)
    engine.known = {GET_LOAD}
    report, asked = await engine.read(2 * PAUSE_S)
    assert report is not None
    assert (report, asked) == (LoadReport(report.at_unix_s, running=2, waiting=1), [GET_LOAD])


async def test_answer_too_long_too_slow_or_wrong_is_no_report(wire: Wire, worker: FakeWorker) -> None:
    engine = Engine(wire, worker)
    endless = raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"[" * (LIMIT_BYTES + 100))
    worker.next(endless, raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nvllm", Stall()), status(200, body=b"no"))
    assert await engine.read() == (None, [LOADS, GET_LOAD, METRICS])
