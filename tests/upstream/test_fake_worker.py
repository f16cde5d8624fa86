"""The fake worker itself, as tests that are not async use it."""

from __future__ import annotations

import http.client
import threading

import pytest

from tests.fakes.scripts import Script, Stall, Wait, chat, chat_stream, status
from tests.fakes.worker import FakeWorker


def ask(worker: FakeWorker, path: str = "/v1/chat/completions", body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(worker.host, worker.port, timeout=5)
    try:
        connection.request("POST" if body is not None else "GET", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_worker_in_a_thread_answers_by_script_then_by_default():
    with FakeWorker.in_thread() as worker:
        worker.next(status(503, body=b"no"), chat("hello"))
        assert ask(worker, body=b"{}") == (503, b"no")
        assert b"hello" in ask(worker, body=b"{}")[1]
        assert ask(worker, body=b'{"stream": true}')[1].endswith(b"data: [DONE]\n\n")
        worker.default = lambda request: status(200, body=request.path.encode())
        assert ask(worker, "/v1/models") == (200, b"/v1/models")
        assert [request.body for request in worker.requests] == [b"{}", b"{}", b'{"stream": true}', b""]


def test_worker_in_a_thread_has_a_health_switch_that_takes_no_script():
    with FakeWorker.in_thread(chat_stream(["a"])) as worker:
        worker.next(status(500))
        assert ask(worker, "/health")[0] == 200
        worker.is_healthy = False
        assert ask(worker, "/health")[0] == 503
        assert (len(worker.health_requests), worker.requests) == (2, [])
        assert ask(worker)[0] == 500


def test_worker_in_a_thread_waits_for_an_event_and_sees_the_peer_leave():
    gate = threading.Event()
    with FakeWorker.in_thread() as worker:
        worker.next(Script([Wait(gate), *chat("late").steps]), Script([Stall()]))
        threading.Timer(0.02, gate.set).start()
        assert b"late" in ask(worker)[1]
        connection = http.client.HTTPConnection(worker.host, worker.port)
        connection.request("GET", "/")
        worker.wait_until(lambda: len(worker.requests) == 2)
        connection.close()
        worker.wait_until(lambda: worker.closed_by_peer and worker.closed_by_peer[-1].in_request)


def test_worker_raises_what_a_script_raised():
    def broken(request):
        raise LookupError("script")

    with pytest.raises(LookupError), FakeWorker.in_thread(broken) as worker, pytest.raises(OSError):
        ask(worker)
