"""Pools, workers and accounts through the control API."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gateway.models import AuditEvent, ConfigRevision, Pool, VendorAccount, Worker
from gateway.runtime.document import document
from gateway.runtime.edit import edit
from gateway.runtime.secrets import resolve, worker_owner
from tests.api.objects import POOL, Api, apply

FULL = {
    "model": "meta/llama",
    "aliases": ["llama"],
    "policy": "least_requests",
    "rate_limit": 1000,
    "max_in_flight": 64,
    "queue": {"size": 8, "timeout_s": 2},
    "history": "metadata",
    "workers": [
        {"name": "w1", "url": "http://127.0.0.1:9101", "weight": 2, "labels": {"zone": "a"}},
        {"name": "w2", "url": "http://127.0.0.1:9102", "profiles": [{"services": ["chat"], "max_batch_size": 8}]},
    ],
}


def test_pool_when_created_has_the_shape_of_files(api: Api) -> None:
    made = api.ok("POST", "/pools", FULL)

    assert made == FULL
    assert api.ok("GET", "/pools/meta/llama") == FULL
    assert document()["pools"] == [FULL]
    event = AuditEvent.objects.filter(kind="pool").get()
    assert (event.actor, event.origin, Pool.objects.get().origin) == ("key demo/ops", "api", "api")


def test_pool_when_put_back_as_it_was_got_makes_no_revision(api: Api) -> None:
    api.ok("POST", "/pools", FULL)
    before = ConfigRevision.objects.count()

    api.ok("PUT", "/pools/meta/llama", api.ok("GET", "/pools/meta/llama"))

    assert ConfigRevision.objects.count() == before


def test_pool_when_replaced_has_the_defaults_of_what_is_left_out(api: Api) -> None:
    api.ok("POST", "/pools", FULL)

    assert api.ok("PUT", "/pools/meta/llama", POOL) == POOL
    assert Worker.objects.count() == 1


def test_pool_when_patched_merges_groups_and_null_removes(api: Api) -> None:
    api.ok("POST", "/pools", FULL)
    worker = Worker.objects.get(name="w1").pk

    patched = api.ok(
        "PATCH", "/pools/meta/llama", {"queue": {"size": 9}, "rate_limit": None, "policy": {"name": "random"}}
    )

    expected = FULL | {"queue": {"size": 9, "timeout_s": 2}, "policy": "random"}
    assert patched == {name: value for name, value in expected.items() if name != "rate_limit"}
    assert Worker.objects.get(name="w1").pk == worker


def test_pool_when_deleted_is_gone(api: Api) -> None:
    api.ok("POST", "/pools", POOL)

    assert api("DELETE", "/pools/meta/llama").status_code == 204
    assert api.error("GET", "/pools/meta/llama")[0] == 404
    assert Worker.objects.count() == 0


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": "m"}, "pools[m].workers"),
        (POOL | {"queue": {"size": -1}}, "queue.size"),
        (POOL | {"queue": {"sise": 1}}, "queue.sise"),
        (POOL | {"policy": "best"}, "pools[meta/llama].policy"),
        (POOL | {"rate_limit": "1000"}, "rate_limit.int"),
        (POOL | {"account": "nobody"}, "pools[meta/llama].account"),
        (POOL | {"history": "some"}, "history"),
        (POOL | {"tokens_per_minute": 5}, "tokens_per_minute"),
        (POOL | {"origin": "prod.yaml"}, "origin"),
        (POOL | {"id": 7}, "id"),
        (POOL | {"health": {"path": "up"}}, "pools[meta/llama].health.path"),
        (POOL | {"workers": [{"name": "w1", "url": "ftp://h"}]}, "pools[meta/llama].workers[w1].url"),
        (POOL | {"workers": [{"name": "w1", "url": "http://h", "health": "healthy"}]}, "workers.0.health"),
        (POOL | {"workers": [{"name": "w1", "url": "http://h", "secret": "x"}]}, "workers.0.secret"),
        (POOL | {"workers": [{"name": "w1", "url": "http://h", "profiles": [{"gpu": 1}]}]}, "workers.0.profiles.0.gpu"),
        ([], ""),
    ],
)
def test_pool_that_cannot_be_used_is_refused_with_its_place(api: Api, body: Any, path: str) -> None:
    before = ConfigRevision.objects.count()

    status, error = api.error("POST", "/pools", body)

    assert (status, error["type"], error["code"]) == (422, "invalid_request_error", "invalid_configuration")
    assert error["param"] == (path or None)
    assert path in [problem["path"] for problem in error["problems"]]
    assert (Pool.objects.count(), ConfigRevision.objects.count()) == (0, before)


def test_body_that_is_no_json_is_a_bad_request(api: Api) -> None:
    assert api.error("POST", "/pools", b"{")[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/pools/m", POOL | {"model": "m"}),
        ("PATCH", "/pools/m", {}),
        ("DELETE", "/pools/m", None),
        ("POST", "/pools/m/workers", {"name": "w2", "url": "http://h"}),
        ("PATCH", "/pools/m/workers/w1", {"weight": 2}),
        ("POST", "/pools/m/workers/w1/drain", None),
        ("DELETE", "/pools/m/workers/w1", None),
        ("PATCH", "/accounts/main", {}),
        ("DELETE", "/accounts/main", None),
    ],
)
def test_object_of_a_file_is_not_changed(api: Api, method: str, path: str, body: Any) -> None:
    apply(
        "version: 1\naccounts: [{name: main, base_url: 'https://example.test'}]\n"
        "pools: [{model: m, workers: [{name: w1, url: 'http://127.0.0.1:1'}]}]\n"
    )

    status, error = api.error(method, path, body)

    assert (status, error["code"]) == (409, "owner_conflict")
    assert "prod.yaml" in error["message"]


def test_pool_that_was_made_in_the_admin_keeps_its_origin(api: Api) -> None:
    with edit("root", "admin"):
        pool = Pool.objects.create(model="m", origin="admin")
        Worker.objects.create(pool=pool, name="w1", url="http://127.0.0.1:1")

    api.ok("PATCH", "/pools/m", {"rate_limit": 5})

    pool.refresh_from_db()
    assert (pool.requests_per_minute, pool.origin) == (5, "admin")


def test_name_when_taken_or_changed_is_refused(api: Api) -> None:
    api.ok("POST", "/pools", POOL)

    assert api.error("POST", "/pools", POOL)[0] == 409
    assert api.error("PATCH", "/pools/meta/llama", {"model": "other"})[0] == 422
    assert api.error("PATCH", "/pools/meta/llama/workers/w1", {"name": "w2"})[0] == 422
    assert api.error("POST", "/pools/meta/llama/workers", {"name": "w1", "url": "http://h"})[0] == 409


def test_worker_is_added_changed_drained_activated_and_deleted(api: Api) -> None:
    api.ok("POST", "/pools", POOL)
    workers = "/pools/meta/llama/workers"

    added = api.ok("POST", workers, {"name": "w2", "url": "http://127.0.0.1:9102"})
    changed = api.ok("PATCH", f"{workers}/w2", {"weight": 3, "labels": {"zone": "b"}})
    drained = api.ok("POST", f"{workers}/w2/drain")
    active = api.ok("POST", f"{workers}/w2/activate")
    api.ok("DELETE", f"{workers}/w1")

    assert added == {"name": "w2", "url": "http://127.0.0.1:9102"}
    assert changed == added | {"weight": 3, "labels": {"zone": "b"}}
    assert (drained, active) == (changed | {"state": "draining"}, changed)
    assert api.ok("GET", workers) == {"items": [changed], "count": 1}
    assert api.error("PATCH", f"{workers}/w1", {})[0] == 404
    assert api.error("DELETE", f"{workers}/w2")[0] == 422


def test_worker_when_changed_keeps_what_the_probes_wrote(api: Api) -> None:
    api.ok("POST", "/pools", POOL)
    Worker.objects.update(health="healthy")

    api.ok("PATCH", "/pools/meta/llama/workers/w1", {"weight": 3})

    assert list(Worker.objects.values_list("weight", "health")) == [(3, "healthy")]


def test_secrets_go_in_and_never_out(api: Api) -> None:
    secret = {"name": "w1", "url": "http://127.0.0.1:9101", "api_key": "canary-secret"}
    answers = [api("POST", "/pools", POOL | {"workers": [secret]})]
    answers.append(api("PUT", "/pools/meta/llama", POOL))  # without the key, as it was got
    answers.append(api("PATCH", "/pools/meta/llama", {"workers": POOL["workers"]}))
    answers += [api("GET", path) for path in ("/pools", "/pools/meta/llama", "/pools/meta/llama/workers")]
    stored = Worker.objects.get().secret

    assert {answer.status_code for answer in answers} == {200, 201}
    assert [b"canary" in answer.content or b"sealed" in answer.content for answer in answers] == [False] * 6
    assert resolve(stored, worker_owner("meta/llama", "w1")) == "canary-secret"
    api.ok("PATCH", "/pools/meta/llama/workers/w1", {"api_key": None})
    assert Worker.objects.get().secret == ""


def test_account_is_created_changed_used_and_deleted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IGW_TEST_KEY", "secret")
    account = {"name": "main", "base_url": "https://example.test/v1", "api_key": "env:IGW_TEST_KEY"}

    assert api.ok("POST", "/accounts", account) == account
    assert api.ok("PATCH", "/accounts/main", {"base_url": "https://other.test"})["base_url"] == "https://other.test"
    assert api.ok("PUT", "/accounts/main", account) == account
    assert api.ok("GET", "/accounts") == {"items": [account], "count": 1}
    api.ok("POST", "/pools", {"model": "gpt", "account": "main"})
    assert api.error("DELETE", "/accounts/main")[1]["code"] == "in_use"
    api.ok("DELETE", "/pools/gpt")
    api.ok("DELETE", "/accounts/main")
    assert VendorAccount.objects.count() == 0


def test_list_is_paged_and_capped(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.ok("POST", "/pools", POOL | {"model": name})

    assert [pool["model"] for pool in api.ok("GET", "/pools?limit=2&offset=1")["items"]] == ["b", "c"]
    assert api.ok("GET", "/pools?limit=200")["count"] == 3
    assert api.error("GET", "/pools?limit=201")[1]["param"] == "limit"
    assert api.error("GET", "/pools?offset=-1")[0] == 422


@pytest.mark.parametrize("path", ["/pools", "/accounts", "/groups", "/keys", "/teams", "/status", "/pools/a"])
def test_answer_when_there_is_more_asks_no_more_queries(api: Api, path: str, django_assert_num_queries: Any) -> None:
    api.ok("POST", "/pools", POOL | {"model": "a"})
    with CaptureQueriesContext(connection) as first:
        api.ok("GET", path)
    count = len(first)
    for name in ("b", "c"):
        api.ok("POST", "/pools", POOL | {"model": name})
        api.ok("POST", "/groups", {"id": name, "members": [name]})
        api.ok("POST", "/teams", {"name": name})
        api.ok("POST", "/keys", {"team": name, "name": "k"})

    with django_assert_num_queries(count):
        api.ok("GET", path)
