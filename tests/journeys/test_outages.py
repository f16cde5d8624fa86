"""Redis goes away under the running gateway, with Celery beside it, and comes back."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.valkey import OwnValkey
from tests.fakes.worker import FakeWorker
from tests.journeys.stack import ask, stack, until
from tests.journeys.test_calls import pool, serve_model


def test_calls_and_edits_go_on_without_redis_and_probes_come_back_with_it(tmp_path: Path) -> None:
    valkey = OwnValkey(tmp_path)
    try:
        with FakeWorker.in_thread() as worker, stack(tmp_path, "igw_outages", valkey.url) as gateway:
            gateway.serve(IGW_PROCESSES="1")
            gateway.celery()
            key = gateway.new_key("app", requests_per_minute=100)
            serve_model(gateway, key, pool("m", worker.url))
            until(lambda: gateway.json("/ready")["probes"]["status"] == "fresh", 20)

            valkey.stop()

            assert {gateway.chat(key, ask("m")).status_code for _ in range(20)} == {200}
            assert gateway.api("POST", "/pools", pool("late", worker.url)).status_code == 201
            assert until(lambda: gateway.status("/v1/models/late", key) == 200) < 6
            until(lambda: gateway.json("/ready")["probes"]["status"] == "no probes since", 15)
            assert gateway.status("/ready") == 200
            statuses = [gateway.chat(key, ask("late")).status_code for _ in range(90)]
            assert (statuses.count(200), statuses.count(429)) == (80, 10)  # the limit holds: 100 with the 20 above

            valkey.start()

            until(lambda: gateway.json("/ready")["probes"]["status"] == "fresh", 20)
            assert gateway.json("/diagnostics")["redis"] == "up"
    finally:
        valkey.close()
