"""Audit events, revisions and exchanges: shown as they are, to be read only, without secrets."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import Exchange
from gateway.models import AuditEvent, ConfigRevision, VendorAccount
from gateway.runtime.edit import edit
from gateway.runtime.secrets import account_owner, seal, worker_owner
from tests.admin_ui.objects import make_pool, make_team

EXCHANGES = reverse("admin:conversations_exchange_changelist")
CANARY = "canary-secret-0123456789"


def make_exchange(**columns: Any) -> Exchange:
    values = {
        "id": uuid.uuid4(),
        "created_at": timezone.now(),
        "team_id": 0,
        "team": "red",
        "key_id": 1,
        "key": "app",
        "request_id": "req-1",
        "service": "chat",
        "model": "ds3",
        "pool_id": 1,
        "pool": "deepseek-v3",
        "worker_id": "w1",
        "worker": "w1",
        "conversation_id": "",
        "revision": 1,
        "is_streaming": False,
        "attempts": [],
        "outcome": "completed",
        "status": 200,
        "error_code": "",
        "queued_s": 0.0,
        "ttft_s": 0.1,
        "duration_s": 1.5,
        "input_tokens": 1,
        "output_tokens": 2,
        "cached_tokens": 0,
        "usage_source": "upstream",
        "response_bytes": 3,
        "is_truncated": False,
        "request_body": b"{}",
        "response_body": b"{}",
    }
    return Exchange.objects.create(**values | columns)


def detail(exchange: Exchange) -> str:
    return reverse("admin:conversations_exchange_change", args=[exchange.pk])


def test_secrets_are_on_no_page(admin: Client) -> None:
    pool = make_pool()
    with edit("tests", "admin"):
        VendorAccount.objects.create(
            name="main", base_url="https://example.test", secret=seal(CANARY, account_owner("main"))
        )
        pool.workers.update(secret=seal(CANARY, worker_owner("deepseek-v3", "w1")))
    tokens = [VendorAccount.objects.get().secret, pool.workers.get().secret]
    revision = ConfigRevision.objects.first()
    assert revision is not None
    urls = [reverse("admin:index"), reverse("admin:gateway_pool_change", args=[pool.pk])]
    urls += [reverse("admin:gateway_worker_change", args=[pool.workers.get().pk])]
    urls += [reverse("admin:gateway_vendoraccount_change", args=[VendorAccount.objects.get().pk])]
    urls += [reverse("admin:gateway_configrevision_change", args=[revision.pk])]
    urls += [reverse("admin:gateway_auditevent_change", args=[event.pk]) for event in revision.events.all()]
    models = ["pool", "worker", "vendoraccount", "team", "apikey", "configrevision", "auditevent"]
    urls += [reverse(f"admin:gateway_{model}_changelist") for model in models]

    pages = {url: admin.get(url).content.decode() for url in urls}

    assert [url for url, page in pages.items() if CANARY in page or any(token in page for token in tokens)] == []
    assert "stored, leave empty to keep" in pages[urls[1]]


def test_revision_shows_what_changed_and_the_configuration_after_it(admin: Client) -> None:
    pool = make_pool()
    with edit("alice", "admin"):
        type(pool).objects.update(queue={"size": 5})

    page = admin.get(reverse("admin:gateway_configrevision_change", args=[ConfigRevision.objects.latest("pk").pk]))

    text = page.content.decode()
    assert "update pool <strong>deepseek-v3</strong>" in text
    assert '<td class="igw-after">{size: 5}</td>' in text
    assert "url: http://127.0.0.1:9101" in text


@pytest.mark.parametrize("model", ["configrevision", "auditevent"])
def test_records_are_not_changed_even_by_superusers(admin: Client, model: str) -> None:
    make_team()
    row = {"configrevision": ConfigRevision, "auditevent": AuditEvent}[model].objects.latest("pk")

    urls = [reverse(f"admin:gateway_{model}_add")]
    urls += [reverse(f"admin:gateway_{model}_{action}", args=[row.pk]) for action in ("change", "delete")]

    assert [admin.post(url, {"post": "yes"}).status_code for url in urls] == [403, 403, 403]


def test_exchange_shows_its_bodies_as_text(admin: Client) -> None:
    exchange = make_exchange(
        request_body=b'{"messages":[{"content":"<script>alert(1)</script>"}]}',
        response_body=b"data: half \xff\x00 way",
        is_truncated=True,
    )

    page = admin.get(detail(exchange)).content.decode()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "data: half \ufffd\x00 way\n… (the rest was not kept)" in page


def test_exchange_without_bodies_says_so(admin: Client) -> None:
    exchange = make_exchange(request_body=None, response_body=None)

    assert admin.get(detail(exchange)).content.decode().count("not kept") == 2


def test_exchange_list_neither_counts_nor_loads_bodies(admin: Client, django_assert_max_num_queries: Any) -> None:
    make_exchange()

    with django_assert_max_num_queries(10) as queries:
        admin.get(EXCHANGES)

    told = [query["sql"] for query in queries.captured_queries if "conversations_exchange" in query["sql"]]
    assert [("COUNT(" in sql, "request_body" in sql) for sql in told] == [(False, False)] * len(told)
    assert told


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("outcome=failed", ["req-b"]),
        ("pool=gpt-4o", ["req-b"]),
        ("team_id={team}", ["req-b"]),
        ("within=1", ["req-a"]),
        ("q=req-a", ["req-a"]),
        ("", ["req-a", "req-b"]),
    ],
)
def test_exchange_list_when_filtered_shows_what_matches(admin: Client, query: str, expected: list[str]) -> None:
    make_pool("gpt-4o")
    team = make_team()
    make_exchange(request_id="req-a")
    old = timezone.now() - timezone.timedelta(hours=3)
    make_exchange(request_id="req-b", outcome="failed", pool="gpt-4o", team_id=team.pk, created_at=old)

    page = admin.get(f"{EXCHANGES}?{query.format(team=team.pk)}")

    assert [row.request_id for row in page.context["cl"].result_list] == expected


def test_history_of_an_object_is_its_audit_events(admin: Client) -> None:
    pool = make_pool()

    response = admin.get(reverse("admin:gateway_pool_history", args=[pool.pk]))

    assert response.headers["Location"] == reverse("admin:gateway_auditevent_changelist") + "?q=deepseek-v3"
