"""Who gets into the control API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from pytest_django import Settings

from gateway.api.app import api as ninja_api
from gateway.models import ApiKey
from tests.api.objects import BASE, Api, make_key

pytestmark = pytest.mark.django_db
METHODS = ("get", "put", "post", "delete", "patch")


def operations() -> Iterator[tuple[str, str]]:
    for path, item in ninja_api.get_openapi_schema()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), re.sub(r"\{[^}]*\}", "x", path)


def test_every_route_without_a_key_is_refused() -> None:
    statuses = {(method, path): Client().generic(method, path).status_code for method, path in operations()}

    assert len(statuses) > 25
    assert set(statuses.values()) == {401}


def test_every_route_for_a_key_without_the_scope_is_forbidden() -> None:
    headers = {"Authorization": f"Bearer {make_key('app', is_operator=False)}"}

    assert {Client().generic(m, path, headers=headers).status_code for m, path in operations()} == {403}


def test_session_of_a_superuser_is_no_key() -> None:
    client = Client()
    client.force_login(User.objects.create(username="root", is_superuser=True, is_staff=True))

    assert client.get(f"{BASE}/pools").status_code == 401


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer sk-igw-00000000-x", "Bearer \xff", "Bearer a b"]
)
def test_wrong_header_gets_the_one_answer(header: str) -> None:
    answer = Client().get(f"{BASE}/pools", headers={"Authorization": header} if header else {})

    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert answer.json()["error"]["code"] == "invalid_api_key"


def test_key_with_another_secret_behind_a_known_prefix_is_refused() -> None:
    text = make_key()

    assert Api(text[:-1] + ("a" if text[-1] != "a" else "b"))("GET", "/pools").status_code == 401


@pytest.mark.parametrize("columns", [{"is_disabled": True}, {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}])
def test_key_that_is_disabled_or_expired_is_refused(columns: dict[str, object]) -> None:
    assert Api(make_key(**columns))("GET", "/pools").status_code == 401


def test_key_digested_with_an_older_pepper_is_taken(settings: Settings) -> None:
    text = make_key()

    with override_settings(KEY_PEPPERS=[b"newer", *settings.KEY_PEPPERS]):
        assert Api(text)("GET", "/pools").status_code == 200


def test_documentation_is_open_and_names_no_object_of_this_installation() -> None:
    make_key("canary-key")

    schema = Client().get(f"{BASE}/openapi.json")
    page = Client().get("/api/docs")

    assert (schema.status_code, page.status_code) == (200, 200)
    assert b"canary-key" not in schema.content + page.content
    assert ApiKey.objects.get().digest.encode() not in schema.content
