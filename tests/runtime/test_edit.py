"""runtime/edit: all or nothing, audited, one at a time, and the bell."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from pytest_django.fixtures import Settings

from gateway.models import AuditEvent, ConfigRevision, Pool, Team, VendorAccount, Worker
from gateway.routing.options import Problem
from gateway.runtime.audit import verify
from gateway.runtime.bell import CHANNEL
from gateway.runtime.builder import ConfigError, build
from gateway.runtime.document import document
from gateway.runtime.edit import edit
from gateway.runtime.secrets import account_owner, resolve, seal, worker_owner


def make_pool(model: str = "m", **columns: Any) -> Pool:
    pool = Pool.objects.create(model=model, **columns)
    Worker.objects.create(pool=pool, name="w1", url="http://h")
    return pool


@pytest.mark.django_db
def test_edit_leaves_one_revision_and_an_event_per_object() -> None:
    with edit("alice", "admin") as change:
        make_pool()
    revision = ConfigRevision.objects.get()
    assert (revision.pk, revision.actor, revision.origin) == (change.revision, "alice", "admin")
    assert revision.summary == "create pool m, create worker m/w1"
    assert (revision.document, revision.fingerprint) == (document(), build(0).fingerprint)
    assert list(AuditEvent.objects.order_by("pk").values_list("action", "kind", "object", "changes")) == [
        ("create", "pool", "m", {"model": [None, "m"]}),
        ("create", "worker", "m/w1", {"name": [None, "w1"], "url": [None, "http://h"]}),
    ]


@pytest.mark.django_db
def test_edit_without_a_change_leaves_no_revision() -> None:
    make_pool()
    with edit("alice", "admin") as change:
        Worker.objects.update(health="healthy")
    assert (change.revision, change.changes, ConfigRevision.objects.count()) == (None, [], 0)


@pytest.mark.django_db
def test_edit_that_cannot_be_used_is_rolled_back_and_told() -> None:
    def body() -> None:
        make_pool("good")
        make_pool("bad", queue={"size": -1})

    with pytest.raises(ConfigError) as caught, edit("alice", "admin"):
        body()
    assert [str(p) for p in caught.value.problems] == ["pools[bad].queue.size: -1 is below the least allowed, 0"]
    assert (Pool.objects.count(), ConfigRevision.objects.count()) == (0, 0)


@pytest.mark.django_db
def test_edit_whose_body_raises_is_rolled_back() -> None:
    def body() -> None:
        make_pool()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), edit("alice", "admin"):
        body()
    assert Pool.objects.count() == 0


@pytest.mark.django_db
def test_problems_of_the_body_are_told_with_those_of_the_check() -> None:
    Pool.objects.create(model="m")
    with pytest.raises(ConfigError) as caught, edit("alice", "admin") as change:
        change.problems.append(Problem("x", "mine"))
    assert [problem.path for problem in caught.value.problems] == ["x", "pools[m].workers"]


@pytest.mark.django_db
def test_what_the_database_refuses_is_a_config_error() -> None:
    make_pool()
    account = VendorAccount.objects.create(name="a", base_url="http://h")
    Pool.objects.create(model="n", account=account)
    for body, message in (
        (make_pool, "Key (model)=(m) already exists."),
        (lambda: make_pool("x" * 201), "a value does not fit its column"),
        (account.delete, "still in use by n"),
    ):
        with pytest.raises(ConfigError) as caught, edit("alice", "admin"):
            body()
        assert [problem.message for problem in caught.value.problems] == [message]


@pytest.mark.django_db
def test_dry_run_knows_the_changes_and_makes_none() -> None:
    with edit("alice", "admin", dry_run=True) as change:
        make_pool()
    assert [(c.action, c.object) for c in change.changes] == [("create", "m"), ("create", "m/w1")]
    assert (change.revision, Pool.objects.count(), AuditEvent.objects.count()) == (None, 0, 0)


@pytest.mark.django_db
def test_sealed_secrets_follow_a_rename() -> None:
    pool = make_pool()
    Worker.objects.update(secret=seal("hush", worker_owner("m", "w1")))
    account = VendorAccount.objects.create(name="a", base_url="http://h", secret=seal("hash", account_owner("a")))
    with edit("alice", "admin") as change:
        Pool.objects.filter(pk=pool.pk).update(model="n")
        VendorAccount.objects.filter(pk=account.pk).update(name="b")
    assert resolve(Worker.objects.get().secret, worker_owner("n", "w1")) == "hush"
    assert resolve(VendorAccount.objects.get().secret, account_owner("b")) == "hash"
    assert [(c.action, c.object) for c in change.changes][:2] == [("update", "b"), ("update", "n")]


@pytest.mark.django_db
def test_secret_sealed_for_the_new_name_in_the_same_edit_is_kept() -> None:
    pool = make_pool()
    Worker.objects.update(secret=seal("old", worker_owner("m", "w1")))
    with edit("alice", "admin"):
        Pool.objects.filter(pk=pool.pk).update(model="n")
        Worker.objects.update(secret=seal("new", worker_owner("n", "w1")))
    assert resolve(Worker.objects.get().secret, worker_owner("n", "w1")) == "new"


@pytest.mark.django_db
def test_secrets_are_in_no_event_and_in_no_revision() -> None:
    with edit("alice", "admin"):
        make_pool()
        Worker.objects.update(secret=seal("hush-hush", worker_owner("m", "w1")))
    assert AuditEvent.objects.get(kind="worker").changes["api_key"] == "changed"
    assert "hush-hush" not in str(list(ConfigRevision.objects.values()))


@pytest.mark.django_db
@pytest.mark.parametrize("count", [1, 3])
def test_edit_takes_a_fixed_number_of_queries(count: int, django_assert_num_queries: Any) -> None:
    team = Team.objects.create(name="t")
    for number in range(count):
        make_pool(f"m{number}")
    # savepoint, lock (2), 6 tables twice, the edit, revision, chain's head, events, savepoint
    with django_assert_num_queries(20), edit("alice", "admin"):
        Team.objects.filter(pk=team.pk).update(name="u")


@pytest.mark.django_db(transaction=True)
def test_edit_rings_the_bell_once_committed() -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client, client.pubsub() as pubsub:
        pubsub.subscribe(CHANNEL)
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        with transaction.atomic():
            with edit("alice", "admin") as change:
                make_pool()
            assert pubsub.get_message(timeout=0.05) is None
        assert pubsub.get_message(timeout=5)["data"] == str(change.revision).encode()


@pytest.mark.django_db(transaction=True)
def test_edit_without_redis_is_kept(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with edit("alice", "admin"):
        make_pool()
    assert (Pool.objects.count(), ConfigRevision.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_edits_at_the_same_time_wait_for_each_other() -> None:
    def run(number: int) -> None:
        try:
            with edit("alice", "admin"):
                make_pool(f"m{number}")
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (Pool.objects.count(), ConfigRevision.objects.count()) == (4, 4)
    assert (verify().count, verify().broken_at) == (8, None)


@pytest.mark.django_db(transaction=True)
def test_edit_that_waits_too_long_for_another_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.runtime.edit._LOCK_WAIT", "50ms")
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with edit("alice", "admin"):
            held.set()
            release.wait(10)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        with pytest.raises(ConfigError, match="another edit has been running for 50ms; try again"), edit("bob", "api"):
            pass
    finally:
        release.set()
        thread.join(10)


@pytest.mark.django_db
@pytest.mark.parametrize("table", ["gateway_auditevent", "gateway_configrevision"])
def test_rows_of_the_trail_can_be_neither_changed_nor_deleted(table: str) -> None:
    with edit("alice", "admin"):
        make_pool()
    for statement in (f"UPDATE {table} SET actor = 'bob'", f"DELETE FROM {table}"):  # fixed names
        with pytest.raises(DatabaseError, match="only ever added"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
