"""Pools and workers in the admin: what is saved, what is refused, who may."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from gateway.models import AuditEvent, ConfigRevision, Pool, VendorAccount, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import describe
from gateway.runtime.edit import edit
from gateway.runtime.secrets import resolve, worker_owner
from tests.admin_ui.objects import make_pool

ADD = reverse("admin:gateway_pool_add")
POOLS = reverse("admin:gateway_pool_changelist")
WORKERS = reverse("admin:gateway_worker_changelist")
NEW = {
    "model": "llama",
    "aliases": "l3, l3\nmeta/l3",
    "is_enabled": "on",
    "backend": "openai",
    "policy": "round_robin",
    "history": "full",
    "stream_usage": "on",
    "health__enabled": "on",
    "queue__size": "16",
    "queue__timeout_s": "1.0",
    "workers-TOTAL_FORMS": "1",
    "workers-INITIAL_FORMS": "0",
    "workers-0-name": "w1",
    "workers-0-url": "http://127.0.0.1:9101",
    "workers-0-weight": "2",
    "workers-0-state": "active",
}


def change_url(pool: Pool) -> str:
    return reverse("admin:gateway_pool_change", args=[pool.pk])


def texts(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def errors(response: Any) -> dict[str, list[str]]:
    """What the forms of a page complain of, by field."""
    context = response.context
    found = dict(context["adminform"].form.errors)
    for inline in context["inline_admin_formsets"]:
        for form in inline.formset.forms:
            found |= {f"{form.prefix}-{name}": messages for name, messages in form.errors.items()}
    return {name: list(messages) for name, messages in found.items()}


def test_pool_with_worker_when_added_is_one_revision(admin: Client) -> None:
    response = admin.post(ADD, NEW)

    pool = Pool.objects.get()
    assert (response.status_code, response.url) == (302, POOLS)
    assert (pool.model, pool.aliases, pool.queue, pool.health) == ("llama", ["l3", "meta/l3"], {"size": 16}, {})
    assert list(pool.workers.values_list("name", "url", "weight")) == [("w1", "http://127.0.0.1:9101", 2)]
    assert list(ConfigRevision.objects.values_list("actor", "origin")) == [("root", "admin")]
    assert set(AuditEvent.objects.values_list("action", "kind", "object")) == {
        ("create", "pool", "llama"),
        ("create", "worker", "llama/w1"),
    }


def test_pool_when_saved_unchanged_makes_no_revision(admin: Client, form: Any) -> None:
    pool = make_pool(queue={"size": 5}, aliases=["a", "b"], policy="random")

    response = admin.post(change_url(pool), form(admin, change_url(pool)))

    pool.refresh_from_db()
    assert response.status_code == 302
    assert (pool.queue, pool.aliases, pool.policy) == ({"size": 5}, ["a", "b"], "random")
    assert ConfigRevision.objects.count() == 1


def test_option_when_set_back_to_its_default_is_not_stored(admin: Client, form: Any) -> None:
    pool = make_pool(health={"enabled": False, "path": "/up"})

    admin.post(
        change_url(pool), form(admin, change_url(pool), health__enabled="on", health__path="", retry__max_attempts="3")
    )

    pool.refresh_from_db()
    assert (pool.health, pool.retry) == ({}, {"max_attempts": 3})


def test_worker_form_when_saved_leaves_alone_what_the_probes_write(admin: Client, form: Any) -> None:
    pool = make_pool()
    fields = form(admin, change_url(pool), **{"workers-0-weight": "7"})
    Worker.objects.update(health="healthy")

    admin.post(change_url(pool), fields)

    assert list(Worker.objects.values_list("weight", "health")) == [(7, "healthy")]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"queue__size": "-1"}, {"queue__size": ["Ensure this value is greater than or equal to 0."]}),
        ({"aliases": "deepseek-v3"}, {"aliases": ["the name 'deepseek-v3' is taken by the pool 'deepseek-v3'"]}),
        ({"health__path": "up"}, {"health__path": ["'up' is not a path such as /health"]}),
        (
            {"workers-0-url": "http://a:b@127.0.0.1"},
            {"workers-0-url": ["an address holds no user name or password; use api_key"]},
        ),
        (
            {"workers-0-api_key_text": "two words"},
            {"workers-0-api_key": ["the secret is not one word of visible ASCII characters"]},
        ),
        (
            {"workers-0-api_key_text": "env:IGW_NO_SUCH_VARIABLE"},
            {"workers-0-api_key": ["the environment variable IGW_NO_SUCH_VARIABLE is not set"]},
        ),
    ],
)
def test_pool_that_cannot_be_used_is_refused_at_the_field(admin: Client, changed: Any, expected: Any) -> None:
    make_pool()

    response = admin.post(ADD, NEW | changed)

    shown = {name: messages for name, messages in errors(response).items() if name != "__all__"}
    assert (response.status_code, shown, texts(response)) == (200, expected, [])
    assert (Pool.objects.count(), ConfigRevision.objects.count()) == (1, 1)


def test_problem_of_another_object_is_shown_above_the_form(admin: Client, form: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("IGW_TEST_KEY", "secret")
    pool = make_pool()
    with edit("tests", "admin"):
        VendorAccount.objects.create(name="main", base_url="https://example.test", secret="env:IGW_TEST_KEY")
    fields = form(admin, change_url(pool), requests_per_minute="5")
    monkeypatch.delenv("IGW_TEST_KEY")

    response = admin.post(change_url(pool), fields)

    assert errors(response) == {
        "__all__": ["accounts[main].api_key: the environment variable IGW_TEST_KEY is not set."]
    }


def test_pool_of_a_file_is_shown_with_its_file_and_not_changed(admin: Client) -> None:
    pool = make_pool(origin="prod.yaml", queue={"size": 5})

    page = admin.get(change_url(pool)).content.decode()
    response = admin.post(change_url(pool), NEW)

    pool.refresh_from_db()
    assert "belongs to the file <strong>prod.yaml</strong>" in page
    assert "5 calls" in page
    assert 'name="model"' not in page
    assert texts(response) == [
        "deepseek-v3 belongs to the file prod.yaml and was not changed. "
        "Change the file, or apply it with --adopt after taking the object over here."
    ]
    assert (pool.model, ConfigRevision.objects.count()) == ("deepseek-v3", 1)


def test_object_of_a_file_is_neither_deleted_nor_switched_in_bulk(admin: Client) -> None:
    pool = make_pool(origin="prod.yaml")
    worker = pool.workers.get()
    chosen = {"_selected_action": [pool.pk], "confirmed": "yes", "post": "yes"}

    answers = [
        admin.post(POOLS, {"action": "disable_pools", **chosen}),
        admin.post(POOLS, {"action": "delete_selected", **chosen}),
        admin.post(reverse("admin:gateway_pool_delete", args=[pool.pk]), {"post": "yes"}),
        admin.post(WORKERS, {"action": "drain_workers", **chosen, "_selected_action": [worker.pk]}),
        admin.post(reverse("admin:gateway_worker_change", args=[worker.pk]), {"state": "draining"}),
    ]

    assert [answer.status_code for answer in answers] == [302] * 5
    assert all("belongs to the file prod.yaml" in texts(answer)[-1] for answer in answers)
    assert list(Worker.objects.values_list("pool__is_enabled", "state")) == [(True, "active")]


def test_worker_is_not_added_to_the_pool_of_a_file(admin: Client) -> None:
    pool = make_pool(origin="prod.yaml")
    fields = {"pool": pool.pk, "name": "w2", "url": "http://127.0.0.1:1", "weight": "1", "state": "active"}

    response = admin.post(reverse("admin:gateway_worker_add"), fields)

    assert "belongs to the file prod.yaml" in errors(response)["pool"][0]
    assert pool.workers.count() == 1


def test_pool_when_taken_over_is_edited_here_and_audited(admin: Client) -> None:
    pool = make_pool(origin="prod.yaml")
    url = reverse("admin:gateway_pool_take_over", args=[pool.pk])

    assert "prod.yaml" in admin.get(url).content.decode()
    response = admin.post(url, {"confirmed": "yes"})

    pool.refresh_from_db()
    event = AuditEvent.objects.first()
    assert (response.url, pool.origin) == (change_url(pool), "admin")
    assert event is not None
    assert (event.actor, event.object, event.changes) == ("root", "deepseek-v3", {"origin": ["prod.yaml", "admin"]})
    assert 'name="model"' in admin.get(change_url(pool)).content.decode()


def test_workers_when_drained_in_bulk_are_asked_about_first(admin: Client) -> None:
    worker = make_pool().workers.get()
    chosen = {"action": "drain_workers", "_selected_action": [worker.pk]}

    question = admin.post(WORKERS, chosen).content.decode()
    before = Worker.objects.get().state
    admin.post(WORKERS, chosen | {"confirmed": "yes"})

    assert "Running calls finish, new ones go elsewhere." in question
    assert (before, Worker.objects.get().state) == ("active", "draining")
    assert AuditEvent.objects.filter(kind="worker", action="update").get().changes == {"state": [None, "draining"]}


def test_pool_when_deleted_takes_its_workers_along(admin: Client) -> None:
    pool = make_pool()

    admin.post(reverse("admin:gateway_pool_delete", args=[pool.pk]), {"post": "yes"})

    assert (Pool.objects.count(), Worker.objects.count()) == (0, 0)
    assert set(AuditEvent.objects.filter(action="delete").values_list("object", flat=True)) == {
        "deepseek-v3",
        "deepseek-v3/w1",
    }


def test_last_worker_when_deleted_is_refused_with_the_reason(admin: Client) -> None:
    worker = make_pool().workers.get()

    response = admin.post(reverse("admin:gateway_worker_delete", args=[worker.pk]), {"post": "yes"})

    assert texts(response)[-1] == (
        "Not deleted. pools[deepseek-v3].workers: an enabled pool needs workers or an account."
    )
    assert Worker.objects.count() == 1


def test_worker_secret_is_kept_when_left_empty_and_follows_a_new_name(admin: Client, form: Any) -> None:
    pool = make_pool()
    url = change_url(pool)
    admin.post(url, form(admin, url, **{"workers-0-api_key_text": "s3cret-canary"}))

    admin.post(url, form(admin, url, model="renamed", **{"workers-0-name": "w9"}))

    stored = Worker.objects.get().secret
    assert stored.startswith("sealed:")
    assert resolve(stored, worker_owner("renamed", "w9")) == "s3cret-canary"


def test_worker_secret_when_removed_is_gone(admin: Client, form: Any) -> None:
    pool = make_pool()
    url = change_url(pool)
    admin.post(url, form(admin, url, **{"workers-0-api_key_text": "s3cret-canary"}))

    admin.post(url, form(admin, url, **{"workers-0-api_key_remove": "on"}))

    assert Worker.objects.get().secret == ""


def test_viewer_sees_a_pool_and_cannot_post(viewer: Any) -> None:
    pool = make_pool(queue={"size": 5})
    client = viewer("view_pool", "view_worker")

    page = client.get(change_url(pool))

    assert (page.status_code, client.post(change_url(pool), NEW).status_code) == (200, 403)
    assert 'name="workers-0-url"' not in page.content.decode()


def test_editor_of_pools_cannot_touch_workers(viewer: Any, form: Any) -> None:
    pool = make_pool()
    client = viewer("view_pool", "change_pool", "view_worker")
    fields = form(client, change_url(pool), requests_per_minute="7")

    client.post(change_url(pool), fields | {"workers-0-url": "http://evil.test", "workers-0-weight": "9"})
    client.post(WORKERS, {"action": "drain_workers", "_selected_action": [pool.workers.get().pk], "confirmed": "yes"})

    pool.refresh_from_db()
    assert pool.requests_per_minute == 7
    assert list(pool.workers.values_list("url", "weight", "state")) == [("http://127.0.0.1:9101", 1, "active")]
    assert client.post(reverse("admin:gateway_worker_add"), {}).status_code == 403


def test_pool_form_explains_every_policy_and_shows_the_options_of_the_chosen_one(admin: Client) -> None:
    page = admin.get(ADD)
    form, conditions = page.context["adminform"].form, page.context["adminform"].model_admin.conditional_fields
    options = {f"policy_{p.name}__{o.name}": p.name for p in POLICIES.values() for o in describe(p.options)}

    assert form.fields["policy"].choices == [(p.name, f"{p.name} · {p.summary}") for p in POLICIES.values()]
    assert {name: f"policy == '{policy}'" for name, policy in options.items()} == conditions
    assert options.keys() <= form.fields.keys()


def test_profile_that_is_wrong_is_told_at_its_field_with_its_row(admin: Client) -> None:
    worker = make_pool().workers.get()
    fields = {"name": "w1", "url": worker.url, "weight": "1", "state": "active", "labels": ""}
    fields["profiles"] = '[{"services": ["chat"]}, {"inputs": ["images"]}]'

    response = admin.post(reverse("admin:gateway_worker_change", args=[worker.pk]), fields)

    assert dict(response.context["adminform"].form.errors) == {
        "profiles": ["Row 2, inputs: 'images' is none of text, image, audio, video"]
    }


@pytest.mark.parametrize("url", [POOLS, WORKERS])
def test_list_when_it_grows_asks_no_more_queries(admin: Client, url: str, django_assert_num_queries: Any) -> None:
    make_pool("m0")
    admin.get(url)
    with CaptureQueriesContext(connection) as first:
        admin.get(url)
    count = len(first)
    make_pool("m1")
    make_pool("m2")

    with django_assert_num_queries(count):
        page = admin.get(url).content.decode()

    assert "m2" in page


def test_pool_page_with_more_workers_asks_no_more_queries(admin: Client, django_assert_num_queries: Any) -> None:
    pool = make_pool()
    admin.get(change_url(pool))
    with CaptureQueriesContext(connection) as first:
        admin.get(change_url(pool))
    count = len(first)
    with edit("tests", "admin"):
        for name in ("w2", "w3"):
            Worker.objects.create(pool=pool, name=name, url="http://127.0.0.1:9102")

    with django_assert_num_queries(count):
        admin.get(change_url(pool))


def test_list_without_probes_says_so(admin: Client) -> None:
    make_pool()

    assert "No probes have been seen." in admin.get(POOLS).content.decode()
