"""Redis, Celery and Postgres go away under the running gateway, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest

from tests.fakes.proxy import Proxy
from tests.fakes.valkey import OwnValkey
from tests.fakes.worker import FakeWorker
from tests.journeys.stack import Stack, ask, stack, until
from tests.journeys.test_calls import pool, serve_model


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnValkey]:
    made = OwnValkey(tmp_path_factory.mktemp("valkey"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(valkey: OwnValkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A gateway of one process on stores of its own."""
    state: Path = tmp_path_factory.mktemp("outages")
    with stack(state, "igw_outages", valkey.url) as made:
        made.serve(IGW_PROCESSES="1")
        yield made


def probes(gateway: Stack) -> str:
    return str(gateway.json("/ready")["probes"]["status"])


def test_calls_and_edits_go_on_without_redis_and_probes_come_back_with_it(alone: Stack, valkey: OwnValkey) -> None:
    alone.celery()
    with FakeWorker.in_thread() as worker:
        key = alone.new_key("app", requests_per_minute=100)
        serve_model(alone, key, pool("m", worker.url))
        until(lambda: probes(alone) == "fresh", 20)

        valkey.stop()

        assert {alone.chat(key, ask("m")).status_code for _ in range(20)} == {200}
        assert alone.api("POST", "/pools", pool("late", worker.url)).status_code == 201
        assert until(lambda: alone.status("/v1/models/late", key) == 200) < 6
        until(lambda: probes(alone) == "no probes since", 15)
        assert alone.status("/ready") == 200
        statuses = [alone.chat(key, ask("late")).status_code for _ in range(90)]
        assert (statuses.count(200), statuses.count(429)) == (80, 10)  # the limit holds: 100 with the 20 above

        valkey.start()

        until(lambda: probes(alone) == "fresh", 20)
        assert alone.json("/diagnostics")["redis"] == "up"


def test_calls_go_on_without_celery_and_everybody_says_so(alone: Stack) -> None:
    with FakeWorker.in_thread() as worker:
        key = alone.new_key("uncelery")
        serve_model(alone, key, pool("unprobed", worker.url))
        until(lambda: probes(alone) == "fresh", 20)

        alone.stop("celery")

        until(lambda: probes(alone) == "no probes since", 15)
        assert alone.chat(key, ask("unprobed")).status_code == 200
        assert alone.json("/diagnostics")["probes"]["status"] == "no probes since"
        assert alone.status("/ready") == 200
        alone.celery()
        until(lambda: probes(alone) == "fresh", 20)


def test_calls_go_on_without_postgres_and_every_record_is_there_afterwards(alone: Stack) -> None:
    database = urlsplit(alone.database_url)
    with FakeWorker.in_thread() as worker, Proxy(str(database.hostname), int(database.port or 5432)).running() as proxy:
        key = alone.new_key("recorded")
        serve_model(alone, key, pool("kept", worker.url))
        user = database.netloc.rpartition("@")[0]
        through = urlunsplit(database._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))
        alone.stop("gateway")
        alone.serve(IGW_PROCESSES="1", DATABASE_URL=through)
        assert alone.chat(key, ask("kept")).status_code == 200

        proxy.cut()
        answers = [alone.chat(key, ask("kept")) for _ in range(60)]
        until(lambda: alone.json("/ready")["configuration_problems"], 10)
        waiting = alone.json("/diagnostics")["records"]["queued"]
        proxy.restore()

        assert {answer.status_code for answer in answers} == {200}
        assert waiting >= 60
        ids = [answer.headers["x-request-id"] for answer in answers]
        query = "SELECT request_id FROM conversations_exchange WHERE request_id = ANY(%s) ORDER BY ctid"
        until(lambda: len(alone.rows(query, ids)) == 60, 15)
        assert [request_id for (request_id,) in alone.rows(query, ids)] == ids
        until(lambda: alone.json("/ready")["configuration_problems"] == [], 15)
        assert httpx.get(f"{alone.url}/metrics").text.count("igw_records_dropped_total 0.0") == 1
