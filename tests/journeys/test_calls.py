"""Apps call the running gateway."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from gateway.launch.process import free_port
from tests.fakes.scripts import chat_stream
from tests.fakes.worker import FakeWorker
from tests.journeys.stack import CHAT, ROOT, Stack, ask, until


def serve_model(gateway: Stack, key: str, pool: dict[str, object]) -> None:
    """Make the pool, and wait until every process has it."""
    assert gateway.api("POST", "/pools", pool).status_code == 201
    until(lambda: all(gateway.status(f"/v1/models/{pool['model']}", key) == 200 for _ in range(8)), 3)


def pool(model: str, *urls: str, **fields: object) -> dict[str, object]:
    workers = [{"name": f"w{number}", "url": url} for number, url in enumerate(urls, 1)]
    return {"model": model, "workers": workers, **fields}


def test_openai_sdk_sync_async_and_streamed(gateway: Stack, key: str, worker: FakeWorker) -> None:
    serve_model(gateway, key, pool("sdk", worker.url))
    options = {"base_url": f"{gateway.url}/v1", "api_key": key, "max_retries": 0}
    messages = [{"role": "user", "content": "hi"}]

    async def asynchronous() -> tuple[str, str]:
        async with openai.AsyncOpenAI(**options) as client:
            whole = await client.chat.completions.create(model="sdk", messages=messages)
            text = ""
            async for chunk in await client.chat.completions.create(model="sdk", messages=messages, stream=True):
                text += chunk.choices[0].delta.content or ""
            return whole.choices[0].message.content, text

    with openai.OpenAI(**options) as client:
        whole = client.chat.completions.create(model="sdk", messages=messages)
        stream = client.chat.completions.create(model="sdk", messages=messages, stream=True)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert "sdk" in [model.id for model in client.models.list()]
        assert (whole.choices[0].message.content, streamed) == ("hello", "hello")
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.chat.completions.create(model="nobody", messages=messages)
    assert asyncio.run(asynchronous()) == ("hello", "hello")


def test_call_is_recorded_with_what_happened(gateway: Stack, key: str, worker: FakeWorker) -> None:
    serve_model(gateway, key, pool("recorded", worker.url))

    answer = gateway.chat(key, ask("recorded"))

    query = (
        "SELECT team, model, worker, outcome, status, input_tokens, output_tokens, request_body, response_body "
        "FROM conversations_exchange WHERE request_id = %s"
    )
    request_id = answer.headers["x-request-id"]
    until(lambda: gateway.rows(query, request_id), 5)
    [row] = gateway.rows(query, request_id)
    assert row[:7] == ("journeys", "recorded", "w1", "completed", 200, 5, 1)
    assert b'"recorded"' in row[7]
    assert row[8] == answer.content
    assert key not in gateway.log("gateway")


def test_key_disabled_is_refused_by_both_processes_within_a_second(
    gateway: Stack, key: str, worker: FakeWorker
) -> None:
    serve_model(gateway, key, pool("revoked", worker.url))
    doomed = gateway.new_key("doomed")
    until(lambda: {gateway.chat(doomed, ask("revoked")).status_code for _ in range(8)} == {200}, 3)

    changed = gateway.api("POST", "/keys/journeys/doomed/disable")
    took_s = until(lambda: {gateway.chat(doomed, ask("revoked")).status_code for _ in range(10)} == {401}, 3)

    assert changed.status_code == 200
    assert took_s < 1.0
    assert gateway.chat(key, ask("revoked")).status_code == 200


def test_limit_of_a_key_is_exact_over_both_processes(gateway: Stack, key: str, worker: FakeWorker) -> None:
    serve_model(gateway, key, pool("limited", worker.url))
    limited = gateway.new_key("limited", requests_per_minute=10)
    until(lambda: all(gateway.status("/v1/models", limited) == 200 for _ in range(8)), 3)

    with ThreadPoolExecutor(25) as threads:
        answers = list(threads.map(lambda _: gateway.chat(limited, ask("limited")), range(50)))

    assert Counter(answer.status_code for answer in answers) == {200: 10, 429: 40}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 62
    assert refused.headers["x-ratelimit-limit-requests"] == "10"


def test_worker_killed_under_load_costs_no_call(gateway: Stack, key: str, worker: FakeWorker) -> None:
    port = free_port()
    command = [sys.executable, "manage.py", "demo_worker", "--port", str(port), "--first-byte-ms", "20"]
    victim = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(f"http://127.0.0.1:{port}/health"))
        serve_model(gateway, key, pool("killed", f"http://127.0.0.1:{port}", worker.url))
        statuses: Counter[int] = Counter()
        stopping = threading.Event()

        def load() -> None:
            with httpx.Client(headers={"authorization": f"Bearer {key}"}, timeout=10) as client:
                while not stopping.is_set():
                    statuses[client.post(gateway.url + CHAT, json=ask("killed", max_tokens=1)).status_code] += 1

        with ThreadPoolExecutor(6) as threads:
            running = [threads.submit(load) for _ in range(6)]
            until(lambda: sum(statuses.values()) > 100)
            victim.send_signal(signal.SIGKILL)
            killed_at = sum(statuses.values())
            until(lambda: sum(statuses.values()) > killed_at + 300, 20)
            stopping.set()
            for one in running:
                one.result()
        assert set(statuses) == {200}
    finally:
        victim.kill()
        victim.wait()


def test_worker_that_dies_is_found_by_the_probes_and_so_is_its_return(gateway: Stack, key: str) -> None:
    health = {"interval_s": 0.5, "failure_threshold": 2}
    with FakeWorker.in_thread() as worker:
        serve_model(gateway, key, pool("probed", worker.url, health=health))
        until(lambda: "probed" not in gateway.json("/ready")["pools"])
        worker.is_healthy = False
        until(lambda: gateway.json("/ready")["pools"].get("probed") == "1 unhealthy")
        answer = gateway.chat(key, ask("probed"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker_available")
        worker.is_healthy = True

        until(lambda: "probed" not in gateway.json("/ready")["pools"])

        assert gateway.chat(key, ask("probed")).status_code == 200
        assert gateway.json("/ready")["probes"]["status"] == "fresh"
    assert gateway.api("DELETE", "/pools/probed").status_code == 204


def test_configuration_that_cannot_be_used_keeps_the_last_good_one(
    gateway: Stack, key: str, worker: FakeWorker
) -> None:
    serve_model(gateway, key, pool("kept", worker.url))
    path = gateway.state / "bad.yaml"
    path.write_text(
        "version: 1\naccounts: [{name: a, backend: openai, base_url: 'http://x', api_key: 'env:NOT_HERE'}]\n"
    )
    gateway.manage("apply", str(path), NOT_HERE="only-the-shell-has-it")

    until(lambda: any("NOT_HERE" in problem for problem in gateway.json("/ready")["configuration_problems"]))

    assert gateway.chat(key, ask("kept")).status_code == 200
    path.write_text("version: 1\n")
    gateway.manage("apply", str(path))
    until(lambda: gateway.json("/ready")["configuration_problems"] == [])


def test_process_killed_is_replaced_while_the_other_goes_on(gateway: Stack, key: str, worker: FakeWorker) -> None:
    serve_model(gateway, key, pool("survived", worker.url))
    victim, survivor = gateway.children()

    os.kill(victim, signal.SIGKILL)
    statuses = {gateway.chat(key, ask("survived")).status_code for _ in range(20)}
    until(lambda: len(gateway.children()) == 2 and victim not in gateway.children())

    assert statuses == {200}
    assert survivor in gateway.children()


def test_metrics_of_both_processes_are_summed(gateway: Stack, key: str, worker: FakeWorker) -> None:
    serve_model(gateway, key, pool("counted", worker.url))
    for _ in range(12):
        gateway.chat(key, ask("counted"))

    def counted() -> set[float]:
        lines = httpx.get(f"{gateway.url}/metrics").text.splitlines()
        return {
            float(line.split()[-1]) for line in lines if line.startswith("igw_calls_total{") and '"counted"' in line
        }

    until(lambda: all(counted() == {12.0} for _ in range(4)))


def test_stream_is_finished_after_sigterm_and_the_rest_ends_honestly(gateway: Stack, key: str) -> None:
    short, long = chat_stream(["a"] * 20, gap_s=0.05), chat_stream(["b"] * 2000, gap_s=0.05)
    with FakeWorker.in_thread() as worker:
        serve_model(gateway, key, pool("drained", worker.url))
        gateway.stop("gateway")
        gateway.serve(IGW_GRACE_S="3", IGW_PROCESSES="1")
        worker.next(short, long)
        with ThreadPoolExecutor(2) as threads:
            calls = []
            for count in (1, 2):
                calls.append(threads.submit(_read_to_the_end, gateway, key, ask("drained", stream=True)))
                until(lambda count=count: len(worker.requests) == count)
            assert gateway.stop("gateway") == 0
            finished, cut = (call.result() for call in calls)
        assert finished.rstrip().endswith("data: [DONE]")
        assert '"code":"shutting_down"' in cut
        assert "[DONE]" not in cut
    gateway.serve()


def test_planes_on_two_ports_answer_only_for_themselves(gateway: Stack, key: str) -> None:
    control = free_port()
    gateway.stop("gateway")
    gateway.serve(IGW_CONTROL_PORT=str(control))
    try:
        until(lambda: _answers(f"http://127.0.0.1:{control}/live"))
        assert gateway.status("/v1/models", key) == 200
        assert gateway.status("/admin/login/") == 404
        assert httpx.get(f"http://127.0.0.1:{control}/admin/login/").status_code == 200
        assert httpx.get(f"http://127.0.0.1:{control}/v1/models").status_code == 404
    finally:
        gateway.stop("gateway")
        gateway.serve()


def _read_to_the_end(gateway: Stack, key: str, body: dict[str, object]) -> str:
    text = ""
    with httpx.stream("POST", gateway.url + CHAT, json=body, headers={"authorization": f"Bearer {key}"}) as answer:
        try:
            for piece in answer.iter_text():
                text += piece
        except httpx.RemoteProtocolError:
            pass  # the end without the final chunk, as it should be
    return text


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False
