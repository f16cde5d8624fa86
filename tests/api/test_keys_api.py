"""Teams and keys through the control API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.models import ApiKey, Team
from gateway.protocol.apikeys import prefix_of
from tests.api.objects import Api, apply

NEW = {"team": "demo", "name": "app", "models": ["gpt-4o"], "requests_per_minute": 60, "priority": "batch"}


def test_key_when_created_shows_its_text_this_once(api: Api) -> None:
    made = api.ok("POST", "/keys", NEW)
    later = [api("GET", path) for path in ("/keys", "/keys/demo/app", "/revisions", "/status")]

    text = made["key"]
    assert made["api_key"] == NEW | {"prefix": prefix_of(text), "last4": text[-4:]}
    assert [text.encode() in answer.content or b"digest" in answer.content for answer in later] == [False] * 4
    assert json.loads(later[1].content) == made["api_key"]


def test_operator_key_that_was_created_works(api: Api) -> None:
    text = api.ok("POST", "/keys", NEW | {"operator": True})["key"]

    assert Api(text).ok("GET", "/teams") == {"items": [{"name": "demo"}], "count": 1}


def test_key_without_models_may_use_all(api: Api) -> None:
    api.ok("POST", "/keys", {"team": "demo", "name": "app"})

    assert ApiKey.objects.get(name="app").models == ["*"]


def test_key_when_patched_keeps_its_text(api: Api) -> None:
    text = api.ok("POST", "/keys", NEW)["key"]
    digest = ApiKey.objects.get(name="app").digest

    patched = api.ok(
        "PATCH",
        "/keys/demo/app",
        {"requests_per_minute": None, "priority": None, "expires": "2031-01-31T12:00:00Z", "models": ["*"]},
    )

    assert patched == {
        "team": "demo",
        "name": "app",
        "expires": "2031-01-31T12:00:00+00:00",
        "prefix": prefix_of(text),
        "last4": text[-4:],
    }
    assert ApiKey.objects.get(name="app").digest == digest


def test_key_when_disabled_is_refused_and_when_deleted_gone(api: Api) -> None:
    text = api.ok("POST", "/keys", NEW | {"operator": True})["key"]

    assert api.ok("POST", "/keys/demo/app/disable")["disabled"] is True
    assert Api(text)("GET", "/keys").status_code == 401
    api.ok("DELETE", "/keys/demo/app")
    assert api.error("GET", "/keys/demo/app")[0] == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (NEW | {"digest": "0" * 64}, "digest"),
        (NEW | {"prefix": "abc"}, "prefix"),
        (NEW | {"key": "sk-mine"}, "key"),
        (NEW | {"requests_per_minute": 0}, "teams[demo].keys[app].requests_per_minute"),
        (NEW | {"expires": "soon"}, "teams[demo].keys[app].expires"),
        (NEW | {"name": "no spaces"}, "teams[demo].keys[no spaces].name"),
        (NEW | {"models": "gpt-4o"}, "models"),
    ],
)
def test_key_that_cannot_be_used_is_refused(api: Api, body: Any, param: str) -> None:
    status, error = api.error("POST", "/keys", body)

    assert (status, error["param"]) == (422, param)
    assert not ApiKey.objects.exclude(name="ops").exists()


@pytest.mark.parametrize("field", ["name", "team", "key", "digest", "prefix", "last4"])
def test_key_fields_that_make_it_what_it_is_are_not_patched(api: Api, field: str) -> None:
    api.ok("POST", "/keys", NEW)

    assert api.error("PATCH", "/keys/demo/app", {field: "x"})[1]["param"] == field


def test_key_of_an_unknown_team_and_a_second_of_the_name_are_refused(api: Api) -> None:
    api.ok("POST", "/keys", NEW)

    assert api.error("POST", "/keys", NEW | {"team": "nobody"})[0] == 404
    assert api.error("POST", "/keys", NEW)[1]["code"] == "already_exists"


def test_keys_are_listed_of_one_team(api: Api) -> None:
    api.ok("POST", "/teams", {"name": "red"})
    api.ok("POST", "/keys", NEW | {"team": "red"})

    assert [key["name"] for key in api.ok("GET", "/keys?team=red")["items"]] == ["app"]
    assert api.ok("GET", "/keys")["count"] == 2


def test_team_when_deleted_takes_its_keys_along(api: Api) -> None:
    api.ok("POST", "/teams", {"name": "red"})
    api.ok("POST", "/keys", NEW | {"team": "red"})

    api.ok("DELETE", "/teams/red")

    assert list(Team.objects.values_list("name", flat=True)) == ["demo"]
    assert not ApiKey.objects.filter(name="app").exists()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/teams/blue", None),
        ("PATCH", "/keys/blue/old", {"disabled": True}),
        ("POST", "/keys/blue/old/disable", None),
        ("DELETE", "/keys/blue/old", None),
    ],
)
def test_team_and_key_of_a_file_are_not_changed(api: Api, method: str, path: str, body: Any) -> None:
    apply("version: 1\nteams: [{name: blue, keys: [{name: old, key: a-literal-key-of-more-than-32-characters}]}]\n")

    assert api.error(method, path, body)[1]["code"] == "owner_conflict"
