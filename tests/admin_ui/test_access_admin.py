"""Keys, teams and users in the admin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from gateway.models import ApiKey, AuditEvent, ConfigRevision, Team
from gateway.protocol.apikeys import digest_of, prefix_of
from gateway.runtime.edit import edit
from gateway.runtime.keys import issue_key
from tests.admin_ui.objects import make_team

ADD = reverse("admin:gateway_apikey_add")
KEYS = reverse("admin:gateway_apikey_changelist")


def make_key(team: Team, name: str = "app", **columns: Any) -> ApiKey:
    with edit("tests", "admin"):
        issue_key(team, name, origin="admin", **columns)
    return ApiKey.objects.get(name=name)


def test_key_when_added_is_shown_once_and_stored_as_a_digest(admin: Client) -> None:
    team = make_team()
    fields = {"team": team.pk, "name": "app", "models": "gpt-4o, ds3", "requests_per_minute": "60", "priority": "batch"}
    fields["is_operator"] = "on"

    response = admin.post(ADD, fields)

    text = response.context["text"]
    key = ApiKey.objects.get()
    assert response.status_code == 200
    assert "no-store" in response.headers["Cache-Control"]
    assert response.content.decode().count(text) == 1
    assert (key.prefix, key.last4) == (prefix_of(text), text[-4:])
    assert key.digest == digest_of(text, settings.KEY_PEPPERS[0]).hex()
    assert (key.models, key.requests_per_minute, key.priority, key.is_operator) == (
        ["gpt-4o", "ds3"],
        60,
        "batch",
        True,
    )
    revisions = reverse("admin:gateway_configrevision_changelist")
    later = [KEYS, reverse("admin:gateway_apikey_change", args=[key.pk]), revisions]
    assert [text in admin.get(url).content.decode() for url in later] == [False] * 3


def test_key_without_a_free_name_is_refused(admin: Client) -> None:
    team = make_team()
    make_key(team)

    response = admin.post(ADD, {"team": team.pk, "name": "app", "models": "*", "priority": "interactive"})

    assert response.context["adminform"].form.errors == {"__all__": ["API key with this Team and Name already exists."]}
    assert ApiKey.objects.count() == 1


def test_key_is_made_an_operator_by_superusers_only(viewer: Any) -> None:
    team = make_team()
    client = viewer("add_apikey", "view_apikey", "change_apikey", "view_team")

    client.post(ADD, {"team": team.pk, "name": "app", "models": "*", "priority": "batch", "is_operator": "on"})

    assert list(ApiKey.objects.values_list("name", "is_operator")) == [("app", False)]


def test_key_list_shows_the_state_of_each(admin: Client) -> None:
    team = make_team()
    make_key(team, "a")
    make_key(team, "b", is_operator=True)
    make_key(team, "c", expires_at=datetime(2020, 1, 2, tzinfo=UTC))

    page = admin.get(KEYS).content.decode()

    assert [word in page for word in ("operator", "expired", "2020-01-02 00:00:00 UTC", "sk-igw-")] == [True] * 4


def test_keys_when_disabled_in_bulk_are_audited(admin: Client) -> None:
    key = make_key(make_team())

    admin.post(KEYS, {"action": "disable_keys", "_selected_action": [key.pk], "confirmed": "yes"})

    key.refresh_from_db()
    event = AuditEvent.objects.first()
    assert key.is_disabled
    assert event is not None
    assert (event.actor, event.object, event.changes) == ("root", "demo/app", {"disabled": [None, True]})


def test_key_list_when_it_grows_asks_no_more_queries(admin: Client, django_assert_num_queries: Any) -> None:
    team = make_team()
    make_key(team, "a")
    admin.get(KEYS)
    with CaptureQueriesContext(connection) as first:
        admin.get(KEYS)
    count = len(first)
    make_key(team, "b")
    make_key(make_team("other"), "c")

    with django_assert_num_queries(count):
        admin.get(KEYS)


def test_team_when_added_and_deleted_makes_two_revisions(admin: Client) -> None:
    admin.post(reverse("admin:gateway_team_add"), {"name": "red"})
    team = Team.objects.get()
    admin.post(reverse("admin:gateway_team_delete", args=[team.pk]), {"post": "yes"})

    assert Team.objects.count() == 0
    assert ConfigRevision.objects.count() == 2


@pytest.mark.parametrize("name", ["change", "delete"])
def test_superuser_is_out_of_reach_for_staff(viewer: Any, name: str) -> None:
    root = User.objects.create(username="root", is_superuser=True, is_staff=True)
    client = viewer("change_user", "delete_user", "view_user")

    response = client.post(reverse(f"admin:auth_user_{name}", args=[root.pk]), {"username": "mine", "post": "yes"})

    assert (response.status_code, User.objects.filter(username="root").exists()) == (403, True)


def test_staff_gives_nobody_rights(viewer: Any) -> None:
    client = viewer("change_user", "view_user")
    other = User.objects.create(username="other")
    rights = {"username": "other", "is_superuser": "on", "is_staff": "on", "is_active": "on"}

    client.post(reverse("admin:auth_user_change", args=[other.pk]), rights)

    other.refresh_from_db()
    assert (other.is_superuser, other.is_staff) == (False, False)
