"""What all pages share: the security policy, static files, where strangers end up."""

from __future__ import annotations

import pytest
from django.test import AsyncClient, Client
from django.urls import reverse

from admin_ui.csp import ADMIN, STRICT


def test_policy_of_admin_pages_allows_the_theme(admin: Client) -> None:
    assert admin.get(reverse("admin:index")).headers["Content-Security-Policy"] == ADMIN


@pytest.mark.parametrize("path", ["/", "/api/docs", "/no-such-page", "/static/admin_ui/admin.css"])
def test_policy_of_other_pages_is_strict(path: str) -> None:
    assert Client().get(path).headers["Content-Security-Policy"] == STRICT
    assert "unsafe-eval" not in STRICT


@pytest.mark.django_db
async def test_policy_is_there_under_asgi() -> None:
    answer = await AsyncClient().get(reverse("admin:login"))

    assert answer.headers["Content-Security-Policy"] == ADMIN
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_root_leads_to_the_admin() -> None:
    assert Client().get("/").headers["Location"] == "/admin/"


def test_static_file_is_served_whole() -> None:
    answer = Client().get("/static/admin_ui/favicon.svg")

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
    assert answer.content.startswith(b"<svg")
    assert not answer.streaming


def test_unknown_page_is_plain() -> None:
    answer = Client().get("/no-such-page")

    assert (answer.status_code, answer.content) == (404, b"There is no such page.")


@pytest.mark.django_db
def test_every_page_of_the_admin_asks_for_a_login() -> None:
    models = ["pool", "worker", "vendoraccount", "team", "apikey", "configrevision", "auditevent"]
    paths = [reverse(f"admin:gateway_{model}_changelist") for model in models]
    paths += [reverse("admin:gateway_pool_take_over", args=[1]), reverse("admin:conversations_exchange_changelist")]

    assert {Client().get(path).headers["Location"].split("?")[0] for path in paths} == {reverse("admin:login")}
