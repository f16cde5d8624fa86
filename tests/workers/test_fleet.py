from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from django.conf import settings

from gateway.models import ConfigRevision, Pool, Worker
from gateway.routing.worker import LoadReport
from gateway.runtime.health_board import BOARD, CHANNEL, LOADS, NUDGES, TICK
from tests.fakes.scripts import Stall, raw, status
from tests.fakes.worker import FakeWorker
from workers.fleet import Fleet

pytestmark = pytest.mark.django_db

QUICK = {"interval_s": 0.5, "timeout_s": 0.3, "path": "/health"}


@pytest.fixture
def board() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL, decode_responses=True) as client:
        keys = (BOARD, TICK, NUDGES, LOADS, "igw:probe:lead")
        client.delete(*keys)
        yield client
        client.delete(*keys)


@pytest.fixture
def fleet(board: redis.Redis) -> Iterator[Fleet]:
    fleet = Fleet(settings.REDIS_URL)
    yield fleet
    fleet.close()


@pytest.fixture
def listener() -> Iterator[FakeWorker]:
    with FakeWorker.in_thread() as listener:
        yield listener


def edited() -> None:
    ConfigRevision.objects.create(actor="test", origin="test", summary="", document={}, fingerprint="")


def add(url: str, name: str = "w1", state: str = "active", **health: object) -> Worker:
    """A worker, in the one pool of these tests."""
    pool, _ = Pool.objects.get_or_create(model="m", defaults={"health": {**QUICK, **health}})
    worker = Worker.objects.create(pool=pool, name=name, url=url, state=state)
    edited()
    return worker


def tick_until(fleet: Fleet, condition: Callable[[], object], within_s: float = 8.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        fleet.tick()


def entry(board: redis.Redis, worker: Worker) -> dict[str, object]:
    return json.loads(board.hget(BOARD, f"w{worker.pk}") or "{}")


def state(board: redis.Redis, worker: Worker) -> object:
    return entry(board, worker).get("state")


def test_worker_that_answers_is_healthy_on_the_board_and_in_the_database(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker = add(listener.url)
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    worker.refresh_from_db()
    assert (worker.health, worker.health_reason) == ("healthy", "status 200")
    assert time.time() - float(board.get(TICK)) < 2
    assert listener.requests == []  # a probe is no call


def test_worker_that_is_gone_turns_unhealthy_after_three_probes_and_back_after_one(
    fleet: Fleet, board: redis.Redis
) -> None:
    with FakeWorker.in_thread() as listener:
        worker = add(listener.url)
        tick_until(fleet, lambda: state(board, worker) == "healthy")
    states = {}

    def is_unhealthy() -> bool:
        found = entry(board, worker)
        states[found["streak"]] = found["state"]
        return found["state"] == "unhealthy"

    tick_until(fleet, is_unhealthy)
    assert {streak: state for streak, state in states.items() if streak < 0} == {
        -1: "healthy",
        -2: "healthy",
        -3: "unhealthy",
    }
    worker.refresh_from_db()
    assert (worker.health, worker.health_reason) == ("unhealthy", "connection refused")
    with FakeWorker.in_thread(port=listener.port):
        tick_until(fleet, lambda: state(board, worker) == "healthy")


def test_worker_that_fails_every_fourth_probe_stays_healthy(fleet: Fleet, board: redis.Redis) -> None:
    answers = [status(200), status(200), status(200), status(503)] * 2
    with FakeWorker.in_thread(status(200)) as listener:
        worker, seen = add(listener.url, path="/probe"), set()
        listener.next(*answers)
        tick_until(fleet, lambda: seen.add(state(board, worker)) or len(listener.requests) > 8, 10)
    assert seen - {None} == {"healthy"}


def test_worker_that_is_busy_is_not_down(fleet: Fleet, board: redis.Redis) -> None:
    with FakeWorker.in_thread(status(429)) as listener:
        worker = add(listener.url, path="/probe")
        tick_until(fleet, lambda: len(listener.requests) > 3)
    assert (state(board, worker), entry(board, worker)["reason"]) == ("healthy", "status 429")


def test_worker_draining_is_probed_and_stays_draining_a_disabled_one_is_not(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    with FakeWorker.in_thread() as other:
        draining, disabled = add(listener.url, state="draining"), add(other.url, "w2", state="disabled")
        tick_until(fleet, lambda: state(board, draining) == "healthy")
        assert other.health_requests == []
    draining.refresh_from_db()
    disabled.refresh_from_db()
    assert [(w.state, w.health) for w in (draining, disabled)] == [("draining", "healthy"), ("disabled", "unknown")]
    assert state(board, disabled) is None


def test_worker_nudged_is_probed_at_once_and_once(fleet: Fleet, board: redis.Redis, listener: FakeWorker) -> None:
    worker = add(listener.url, interval_s=3600)
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    fleet.tick()
    assert len(listener.health_requests) == 1  # not due for an hour
    for _ in range(10):
        board.sadd(NUDGES, f"w{worker.pk}", "w0", "a1p1")
    fleet.tick()
    fleet.tick()
    assert len(listener.health_requests) == 2


def test_worker_that_is_silent_does_not_keep_the_others_waiting(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    with FakeWorker.in_thread(raw(b"", Stall())) as silent:
        mute, quick = add(silent.url, path="/probe", timeout_s=1.5), add(listener.url, "w2")
        listener.default = status(200)
        tick_until(fleet, lambda: len(listener.requests) >= 3, 2.5)
        assert state(board, quick) == "healthy"
        tick_until(fleet, lambda: entry(board, mute).get("reason") == "no answer within 1.5 s")


def test_worker_deleted_leaves_the_board_and_the_processes_hear_it(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker, other = add(listener.url), add(listener.url, "w2")
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    gone = f"w{worker.pk}"
    with board.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(CHANNEL)
        channel.get_message(timeout=1)
        worker.delete()
        edited()
        tick_until(fleet, lambda: not board.hexists(BOARD, gone))
        message = channel.get_message(timeout=1)
    assert {name: told["state"] for name, told in json.loads(message["data"]).items()} == {gone: "unknown"}
    assert state(board, other) == "healthy"


def test_worker_at_a_new_address_is_unknown_until_it_is_probed_there(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker = add(listener.url)
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    Worker.objects.filter(pk=worker.pk).update(url="http://127.0.0.1:1")
    edited()
    tick_until(fleet, lambda: state(board, worker) == "unknown")
    tick_until(fleet, lambda: state(board, worker) == "unhealthy")


def test_configuration_that_cannot_be_used_leaves_the_last_good_one(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker = add(listener.url)
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    Pool.objects.update(policy="no-such-policy")
    edited()
    probes = len(listener.health_requests)
    tick_until(fleet, lambda: len(listener.health_requests) > probes + 3)
    assert state(board, worker) == "healthy"


def test_two_worker_processes_only_one_probes_and_the_other_goes_on_from_the_board(
    fleet: Fleet, board: redis.Redis
) -> None:
    with FakeWorker.in_thread() as listener:
        worker = add(listener.url)
        tick_until(fleet, lambda: state(board, worker) == "healthy")
        other = Fleet(settings.REDIS_URL)
        other.tick()
        probes = len(listener.health_requests)
        assert listener.connections == 1
    tick_until(fleet, lambda: entry(board, worker)["streak"] == -2)
    fleet.close()
    tick_until(other, lambda: state(board, worker) == "unhealthy")
    assert (entry(board, worker)["streak"], probes) == (-3, len(listener.health_requests))
    other.close()


def test_board_lost_with_redis_is_written_again(fleet: Fleet, board: redis.Redis, listener: FakeWorker) -> None:
    worker = add(listener.url, interval_s=3600)
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    board.delete(BOARD, TICK, "igw:probe:lead")
    fleet.tick()
    assert (state(board, worker), len(listener.health_requests)) == ("healthy", 1)


def test_database_health_that_differs_is_brought_up_and_otherwise_left_alone(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker = add(listener.url)
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    worker.refresh_from_db()
    since = worker.health_at
    probes = len(listener.health_requests)
    tick_until(fleet, lambda: len(listener.health_requests) > probes + 3)
    worker.refresh_from_db()
    assert worker.health_at == since
    Worker.objects.update(health="unhealthy")  # as if the write had been lost
    tick_until(fleet, lambda: Worker.objects.get(pk=worker.pk).health == "healthy")


def test_pool_whose_probes_are_turned_off_is_off_the_board_and_unknown(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker = add(listener.url)
    tick_until(fleet, lambda: state(board, worker) == "healthy")
    Pool.objects.update(health={"enabled": False})
    edited()
    tick_until(fleet, lambda: state(board, worker) is None)
    assert Worker.objects.get(pk=worker.pk).health == "unknown"


def test_worker_of_a_pool_that_looks_at_loads_has_its_load_on_the_board(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker, started = add(listener.url), time.time()
    Pool.objects.update(policy="least_load")
    listener.default = status(200, body=b'{"loads": [{"num_running_reqs": 4, "token_usage": 0.5}]}')
    with board.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(LOADS)
        channel.get_message(timeout=1)
        tick_until(fleet, lambda: board.hexists(LOADS, f"w{worker.pk}"))
        told = json.loads(channel.get_message(timeout=1)["data"])
    entries = board.hgetall(LOADS)
    report = LoadReport(**json.loads(entries[f"w{worker.pk}"]))
    assert (told, {request.path for request in listener.requests}) == (entries, {"/v1/loads?include=core"})
    assert report == LoadReport(report.at_unix_s, running=4, cache_use=0.5)
    assert started <= report.at_unix_s <= time.time()


def test_worker_whose_pool_no_longer_looks_at_loads_is_not_asked(
    fleet: Fleet, board: redis.Redis, listener: FakeWorker
) -> None:
    worker = add(listener.url)
    Pool.objects.update(policy="least_load")
    listener.default = status(200, body=b'{"loads": [{"num_running_reqs": 4}]}')
    tick_until(fleet, lambda: board.hexists(LOADS, f"w{worker.pk}"))
    Pool.objects.update(policy="round_robin")
    edited()
    probes = len(listener.health_requests)
    tick_until(fleet, lambda: len(listener.health_requests) > probes + 3)  # by now the edit is taken up
    asked, probes = len(listener.requests), len(listener.health_requests)
    tick_until(fleet, lambda: len(listener.health_requests) > probes + 2)
    assert len(listener.requests) == asked


def test_worker_deleted_takes_its_load_off_the_board(fleet: Fleet, board: redis.Redis, listener: FakeWorker) -> None:
    worker, other = add(listener.url), add(listener.url, "w2")
    Pool.objects.update(policy="least_load")
    listener.default = status(200, body=b'{"loads": [{"num_running_reqs": 4}]}')
    gone, left = f"w{worker.pk}", f"w{other.pk}"
    tick_until(fleet, lambda: set(board.hkeys(LOADS)) == {gone, left})
    worker.delete()
    edited()
    tick_until(fleet, lambda: board.hkeys(LOADS) == [left])
