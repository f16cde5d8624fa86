"""runtime/builder: what becomes of rows, and everything that a configuration can have wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.models import ApiKey, Group, Pool, Team, VendorAccount, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import BreakerOptions, QueueOptions
from gateway.routing.requirement import Priority, Profile
from gateway.routing.snapshot import AccountSpec, HistoryMode, PolicySpec, PoolSpec, WorkerSpec, WorkerState
from gateway.runtime.builder import ConfigError, build, build_newest, check
from gateway.runtime.records import PROFILE
from gateway.runtime.rows import read_rows
from gateway.runtime.secrets import account_owner, seal, worker_owner

pytestmark = pytest.mark.django_db


def make_pool(model: str = "m", url: str = "http://127.0.0.1:9101", **columns: Any) -> Pool:
    pool = Pool.objects.create(model=model, **columns)
    Worker.objects.create(pool=pool, name="w1", url=url)
    return pool


def make_key(**columns: Any) -> ApiKey:
    team, _ = Team.objects.get_or_create(name="t")
    defaults = {"name": "k", "prefix": "p", "digest": "00" * 32, "last4": "abcd"}
    return ApiKey.objects.create(team=team, **(defaults | columns))


def problems() -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in check(read_rows(), 0).problems]


def test_build_without_rows_gives_an_empty_snapshot() -> None:
    snapshot = build(7)
    assert (snapshot.revision, dict(snapshot.pools), dict(snapshot.keys)) == (7, {}, {})


def test_build_of_a_pool_gives_its_spec() -> None:
    pool = make_pool(
        aliases=["n"], queue={"size": 3}, circuit_breaker={"timeout_s": 5}, requests_per_minute=9, history="metadata"
    )
    worker = Worker.objects.get()
    Worker.objects.filter(pk=worker.pk).update(
        profiles=[{"services": ["chat"], "streaming": False}], labels={"zone": "b"}, state="draining", weight=4
    )
    snapshot = build(1)
    assert snapshot.pools["m"] is snapshot.names["m"] is snapshot.names["n"]
    assert snapshot.pools["m"] == PoolSpec(
        id=pool.pk,
        model="m",
        aliases=("n",),
        policy=PolicySpec("predict", POLICIES["predict"].options()),
        rate_limit_per_min=9,
        queue=QueueOptions(size=3),
        breaker=BreakerOptions(timeout_s=5.0),
        history=HistoryMode.METADATA,
        created_s=int(pool.created_at.timestamp()),
        workers=(
            WorkerSpec(
                id=f"w{worker.pk}",
                name="w1",
                url="http://127.0.0.1:9101",
                weight=4,
                upstream_model="m",
                profiles=(Profile(frozenset({"chat"}), frozenset(), False),),
                labels={"zone": "b"},
                state=WorkerState.DRAINING,
            ),
        ),
    )


def test_build_of_a_pool_with_an_account_makes_it_the_one_worker() -> None:
    account = VendorAccount.objects.create(name="a", base_url="https://x.example/v1/")
    VendorAccount.objects.update(secret=seal("sk-vendor", account_owner("a")))
    pool = Pool.objects.create(model="m", account=account)
    (worker,) = build(1).pools["m"].workers
    assert worker == WorkerSpec(
        id=f"a{account.pk}p{pool.pk}", name="a", url="https://x.example/v1", is_probed=False, credential="sk-vendor"
    )
    assert "sk-vendor" not in repr(worker)


def test_upstream_model_prefers_the_workers_then_the_pools_then_nothing() -> None:
    pool = make_pool(upstream_model="p")
    Worker.objects.create(pool=pool, name="w2", url="http://h", upstream_model="w")
    make_pool("plain")
    pools = build(1).pools
    assert [worker.upstream_model for worker in pools["m"].workers] == ["p", "w"]
    assert [worker.upstream_model for worker in pools["plain"].workers] == [None]


def test_keys_keep_expiry_and_leave_disabled_ones_out() -> None:
    expiry = datetime(2001, 1, 1, tzinfo=UTC)
    key = make_key(models=["a"], expires_at=expiry, requests_per_minute=5, is_operator=True)
    make_key(name="off", prefix="q", is_disabled=True)
    keys = build(1).keys
    assert list(keys) == ["p"]
    spec = keys["p"]
    assert (spec.id, spec.team, spec.models, spec.expires_s) == (key.pk, "t", frozenset({"a"}), expiry.timestamp())
    assert (spec.requests_per_min, spec.is_operator, spec.digest) == (5, True, bytes(32))


def test_key_of_a_model_that_nothing_serves_is_only_a_warning() -> None:
    make_pool()
    VendorAccount.objects.create(name="a", base_url="http://h")
    Group.objects.create(name="g", members=["m"])
    names = ["m", "*", "group/g", "a/x/y", "a/*"]
    make_key(models=[*names, "elsewhere", "group/h", "b/*", "a/"])
    checked = check(read_rows(), 0)
    assert checked.problems == []
    assert [str(warning) for warning in checked.warnings] == [
        "teams[t].keys[k].models: there is no pool, group or account for elsewhere, group/h, b/*, a/"
    ]


def test_priority_of_a_key_is_the_best_its_calls_may_have() -> None:
    make_key()
    make_key(name="slow", prefix="q", priority="batch")
    assert {key.name: key.priority for key in build(1).keys.values()} == {
        "k": Priority.INTERACTIVE,
        "slow": Priority.BATCH,
    }


def test_accounts_are_all_in_the_snapshot_by_name() -> None:
    account = VendorAccount.objects.create(name="a", base_url="https://x.example/v1/", secret="")
    assert dict(build(1).accounts) == {
        "a": AccountSpec(id=account.pk, name="a", backend="openai", url="https://x.example/v1")
    }


def test_account_may_not_have_the_name_of_groups() -> None:
    VendorAccount.objects.create(name="group", base_url="http://h")
    assert problems() == [("accounts[group].name", "the name 'group' is reserved: group/<id> is a group")]


def test_pool_with_a_name_of_an_accounts_models_is_only_a_warning() -> None:
    VendorAccount.objects.create(name="a", base_url="http://h")
    make_pool("a/x", aliases=["a/y", "b/y"])
    checked = check(read_rows(), 0)
    assert checked.problems == []
    assert [str(warning) for warning in checked.warnings] == [
        "pools[a/x].model: the pool goes before the model of this name of the account 'a'",
        "pools[a/x].aliases: the pool goes before the model of this name of the account 'a'",
    ]


def test_profile_has_every_field_that_a_row_may_have() -> None:
    make_pool()
    row: dict[str, Any] = {
        "services": ["chat"],
        "models": ["m"],
        "streaming": True,
        "inputs": ["text", "image"],
        "outputs": ["audio"],
        "content_forms": ["parts"],
        "audio_formats": ["wav"],
        "tasks": ["transcribe"],
        "max_batch_size": 8,
    }
    Worker.objects.update(profiles=[row, {"streaming": None}])
    values = {name: frozenset(value) if isinstance(value, list) else value for name, value in row.items()}
    assert list(row) == [field.name for field in dataclasses.fields(Profile)] == [part.name for part in PROFILE]
    assert build(1).pools["m"].workers[0].profiles == (Profile(**values), Profile())


def test_disabled_pool_is_checked_and_left_out() -> None:
    make_pool("good", is_enabled=False)
    Pool.objects.create(model="empty", is_enabled=False)
    assert dict(build(1).pools) == {}
    make_pool("bad", is_enabled=False, queue={"size": -1})
    assert [path for path, _ in problems()] == ["pools[bad].queue.size"]


@pytest.mark.parametrize(
    ("columns", "path", "message"),
    [
        ({"queue": {"size": -1}}, "queue.size", "-1 is below the least allowed, 0"),
        ({"queue": {"sice": 1}}, "queue.sice", "no such option; known: size, timeout_s, batch_timeout_s"),
        ({"queue": []}, "queue", "expected options by name, got []"),
        ({"health": {"path": "x y"}}, "health.path", "'x y' is not a path such as /health"),
        ({"policy": "best"}, "policy", f"'best' is unknown; known: {', '.join(sorted(POLICIES))}"),
        ({"policy": "random", "policy_options": {"a": 1}}, "policy.a", "no such option; known: none"),
        ({"backend": "telnet"}, "backend", None),
        ({"model": "a b"}, "model", "'a b' is not a model name: letters, digits and ._:/@+=~- (200 at most)"),
        ({"model": "group/x"}, "model", "'group/x': names that begin with 'group' are reserved"),
        ({"aliases": ["group"]}, "aliases", "'group': names that begin with 'group' are reserved"),
        ({"aliases": ["*"]}, "aliases", "'*' is not a model name: letters, digits and ._:/@+=~- (200 at most)"),
        ({"aliases": "n"}, "aliases", "expected a list of names, got 'n'"),
        ({"aliases": ["m"]}, "aliases", "the name 'm' is taken by the pool 'm'"),
        ({"upstream_model": "a\nb"}, "upstream_model", "'a\\nb' has characters that cannot be printed"),
        ({"requests_per_minute": 0}, "rate_limit", "Ensure this value is greater than or equal to 1."),
        ({"history": "some"}, "history", "Value 'some' is not a valid choice."),
    ],
)
def test_pool_with_a_wrong_column_is_told_by_path(columns: dict[str, Any], path: str, message: str | None) -> None:
    make_pool(**({"model": "m"} | columns))
    ((at, text),) = problems()
    assert at == f"pools[{columns.get('model', 'm')}].{path}"
    assert message is None or text == message


@pytest.mark.parametrize(
    ("columns", "path", "message"),
    [
        ({"url": "ftp://h"}, "url", "expected an address that begins with http:// or https:// and a host"),
        ({"url": "http://"}, "url", "expected an address that begins with http:// or https:// and a host"),
        ({"url": "http://h:0"}, "url", "expected an address that begins with http:// or https:// and a host"),
        ({"url": "http://h\n.example"}, "url", "expected an address that begins with http:// or https:// and a host"),
        ({"url": "http://h:99999"}, "url", "not an address such as http://10.0.0.5:30000"),
        ({"url": "http://[::1"}, "url", "not an address such as http://10.0.0.5:30000"),
        ({"url": "http://u:hush@h"}, "url", "an address holds no user name or password; use api_key"),
        ({"url": "http://h?key=hush"}, "url", "an address holds no query and no fragment"),
        ({"url": "http://h#a"}, "url", "an address holds no query and no fragment"),
        ({"name": "w 1"}, "name", "'w 1' is not a name: letters, digits, - and _ (100 at most)"),
        ({"weight": 0}, "weight", "Ensure this value is greater than or equal to 1."),
        ({"state": "gone"}, "state", "Value 'gone' is not a valid choice."),
        ({"profiles": {}}, "profiles", 'expected a list such as [{"services": ["chat"]}], got {}'),
        ({"profiles": ["x"]}, "profiles[0]", "expected fields by name, got 'x'"),
        (
            {"profiles": [{"gpu": 1}]},
            "profiles[0].gpu",
            "no such field; known: services, models, streaming, inputs, outputs, content_forms, audio_formats, tasks, "
            "max_batch_size",
        ),
        ({"profiles": [{"inputs": ["images"]}]}, "profiles[0].inputs", "'images' is none of text, image, audio, video"),
        ({"profiles": [{"max_batch_size": 0}]}, "profiles[0].max_batch_size", "0 is below the least allowed, 1"),
        (
            {"profiles": [{"max_batch_size": True}]},
            "profiles[0].max_batch_size",
            "expected a whole number, got True",
        ),
        ({"profiles": [{"streaming": "y"}]}, "profiles[0].streaming", "expected true or false, got 'y'"),
        ({"profiles": [{"services": "chat"}]}, "profiles[0].services", "expected a list of names, got 'chat'"),
        ({"labels": {"a": 1}}, "labels", "expected texts by name, got {'a': 1}"),
        ({"secret": "env:IGW_TEST_MISSING"}, "api_key", "the environment variable IGW_TEST_MISSING is not set"),
    ],
)
def test_worker_with_a_wrong_column_is_told_by_path(columns: dict[str, Any], path: str, message: str) -> None:
    make_pool()
    Worker.objects.update(**columns)
    assert problems() == [(f"pools[m].workers[{columns.get('name', 'w1')}].{path}", message)]


@pytest.mark.parametrize(
    ("arrange", "path", "message"),
    [
        (lambda: Pool.objects.create(model="m"), "pools[m].workers", "an enabled pool needs workers or an account"),
        (
            lambda: make_pool(account=VendorAccount.objects.create(name="a", base_url="http://h")),
            "pools[m].account",
            "a pool has workers or an account, not both",
        ),
        (
            lambda: [make_pool("one", aliases=["m"]), make_pool("m")],
            "pools[one].aliases",
            "the name 'm' is taken by the pool 'm'",
        ),
        (
            lambda: [make_pool("one", aliases=["x"]), make_pool("two", aliases=["x"])],
            "pools[two].aliases",
            "the name 'x' is taken by the pool 'one'",
        ),
        (
            lambda: [make_key(), make_key(name="other")],
            "teams[t].keys[other].key",
            "the same key as t/k",
        ),
        (lambda: make_key(models="m"), "teams[t].keys[k].models", "expected a list of names, got 'm'"),
        (
            lambda: VendorAccount.objects.create(name="a", base_url="api.example"),
            "accounts[a].base_url",
            "expected an address that begins with http:// or https:// and a host",
        ),
    ],
)
def test_objects_that_do_not_fit_together_are_told(arrange: Callable[[], Any], path: str, message: str) -> None:
    arrange()
    assert problems() == [(path, message)]
    ApiKey.objects.all().delete()  # the database checks double prefixes at the end of the transaction


def test_account_of_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.runtime.builder.ADAPTERS", {"openai": object(), "other": object()})
    account = VendorAccount.objects.create(name="a", base_url="http://h", backend="other")
    Pool.objects.create(model="m", account=account)
    assert problems() == [("pools[m].account", "a is of 'other', the pool of 'openai'")]


def test_sealed_secret_in_another_row_is_refused() -> None:
    make_pool()
    Worker.objects.update(secret=seal("hush", worker_owner("m", "w2")))
    assert problems() == [
        ("pools[m].workers[w1].api_key", "the sealed secret belongs to another object; enter it anew")
    ]


def test_build_lists_all_problems_at_once() -> None:
    make_pool("a", queue={"size": -1}, policy="best")
    make_pool("b", url="h")
    with pytest.raises(ConfigError) as caught:
        build(1)
    assert [p.path for p in caught.value.problems] == [
        "pools[a].queue.size",
        "pools[a].policy",
        "pools[b].workers[w1].url",
    ]


def test_fingerprint_follows_content_and_not_ids() -> None:
    make_pool()
    first = build(1)
    Pool.objects.all().delete()
    make_pool()
    second = build(2)
    assert first.pools["m"].id != second.pools["m"].id
    assert first.fingerprint == second.fingerprint
    Worker.objects.update(weight=2)
    assert build(3).fingerprint != first.fingerprint


def test_fingerprint_follows_the_secret_that_a_variable_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pool()
    Worker.objects.update(secret="env:IGW_TEST_WORKER_KEY")
    monkeypatch.setenv("IGW_TEST_WORKER_KEY", "one")
    first = build(1)
    assert dataclasses.replace(build(1)) == first
    monkeypatch.setenv("IGW_TEST_WORKER_KEY", "two")
    assert build(1).fingerprint != first.fingerprint


@pytest.mark.parametrize("count", [1, 3])
def test_build_takes_a_fixed_number_of_queries(count: int, django_assert_num_queries: Any) -> None:
    for number in range(count):
        make_pool(f"m{number}")
        make_key(name=f"k{number}", prefix=f"p{number}")
        Group.objects.create(name=f"g{number}", members=["m0"])
    with django_assert_num_queries(7):  # the revision, and one per table
        build_newest()
