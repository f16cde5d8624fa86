"""The real Celery worker with its beat, as the launcher starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from gateway.models import ConfigRevision, Pool, Worker
from gateway.runtime.health_board import BOARD, TICK
from gateway.runtime.lineage import die_with_parent
from tests.fakes.valkey import OwnValkey
from tests.fakes.worker import FakeWorker
from workers.app import TICK_S, app

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = "-A workers.app worker -B -Q probes,igw --pool threads -c 4 --without-gossip --without-mingle"


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path)
    yield server
    server.close()


@pytest.fixture
def celery(valkey: OwnValkey, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    database = connection.settings_dict
    login = f"{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    urls = {"DATABASE_URL": f"postgresql://{login}/{database['NAME']}", "REDIS_URL": valkey.url}
    command = [sys.executable, "-m", "celery", *WORKER.split(), "--without-heartbeat"]
    log = (tmp_path / "celery.log").open("wb")
    child = subprocess.Popen(
        [*command, "--schedule", str(tmp_path / "beat.db"), "-l", "warning"],
        env={**os.environ, **urls},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent(),
    )
    yield child
    child.terminate()
    try:
        child.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(5)
        raise
    finally:
        log.close()
        print((tmp_path / "celery.log").read_text())


def add(url: str) -> Worker:
    pool = Pool.objects.create(model="m", health={"interval_s": 0.5, "timeout_s": 0.5})
    worker = Worker.objects.create(pool=pool, name="w1", url=url)
    ConfigRevision.objects.create(actor="test", origin="test", summary="", document={}, fingerprint="")
    return worker


def until(condition: Callable[[], object], within_s: float) -> float:
    """How long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within_s, "the condition did not come true in time"
        time.sleep(0.02)
    return time.monotonic() - started


def test_celery_worker_is_killed_and_comes_back_the_board_follows(
    valkey: OwnValkey, celery: subprocess.Popen[bytes]
) -> None:
    with valkey.client() as client:

        def state(worker: Worker) -> object:
            return json.loads(client.hget(BOARD, f"w{worker.pk}") or "{}").get("state")

        with FakeWorker.in_thread() as listener:
            worker = add(listener.url)
            until(lambda: state(worker) == "healthy", 20)
        until(lambda: state(worker) == "unhealthy", 4)  # three probes, half a second apart
        until(lambda: Worker.objects.get(pk=worker.pk).health == "unhealthy", 2)
        with FakeWorker.in_thread(port=listener.port) as again:
            until(lambda: state(worker) == "healthy", 3)
            assert again.requests == listener.requests == []


def test_celery_after_an_outage_of_redis_ticks_again_within_seconds(
    valkey: OwnValkey, celery: subprocess.Popen[bytes]
) -> None:
    add("http://127.0.0.1:1")

    def has_ticked() -> bool:
        with valkey.client() as client:
            return client.exists(TICK) == 1

    until(has_ticked, 20)
    valkey.stop()
    time.sleep(4)  # long enough for Celery's own pauses to have grown beyond what is allowed below
    valkey.start()
    until(has_ticked, 4)
    assert celery.poll() is None


def test_ticks_that_waited_too_long_expire() -> None:
    app.loader.import_default_modules()
    (entry,) = app.conf.beat_schedule.values()
    assert entry["task"] in app.tasks
    assert (entry["schedule"], entry["options"]) == (TICK_S, {"expires": TICK_S, "queue": "probes"})
