"""Groups through the control API."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.models import AuditEvent, ConfigRevision, Group
from gateway.runtime.document import document
from tests.api.objects import POOL, Api, apply

GROUP = {"id": "fast", "members": ["meta/llama"]}
FULL = {
    "id": "fast",
    "strategy": "manual",
    "members": ["open/qwen/32b", {"ref": "meta/llama", "weight": 2}],
    "rules": [{"member": "meta/llama", "min_tokens": 8000, "has_tools": True, "teams": ["demo"], "intent": "code"}],
    "picked": "meta/llama",
    "error_classes": "jackdaw-strict",
    "max_attempts": 3,
    "keeps_conversations": False,
    "intent_model": "meta/llama",
    "intents": {"code": "writing code"},
    "enabled": False,
}


@pytest.fixture
def served(api: Api) -> Api:
    """The API where there are a pool and an account."""
    api.ok("POST", "/pools", POOL)
    api.ok("POST", "/accounts", {"name": "open", "base_url": "https://example.test/v1"})
    return api


def test_group_when_created_has_the_shape_of_files(served: Api) -> None:
    assert served.ok("POST", "/groups", FULL) == FULL
    assert served.ok("GET", "/groups/fast") == FULL
    assert served.ok("GET", "/groups") == {"items": [FULL], "count": 1}
    assert document()["groups"] == [FULL]
    event = AuditEvent.objects.get(kind="group")
    assert (event.action, event.object, Group.objects.get().origin) == ("create", "fast", "api")


def test_group_when_put_back_as_it_was_got_makes_no_revision(served: Api) -> None:
    served.ok("POST", "/groups", FULL)
    before = ConfigRevision.objects.count()

    served.ok("PUT", "/groups/fast", served.ok("GET", "/groups/fast"))

    assert ConfigRevision.objects.count() == before


def test_group_when_replaced_patched_and_deleted(served: Api) -> None:
    served.ok("POST", "/groups", FULL)

    replaced = served.ok("PUT", "/groups/fast", GROUP)
    patched = served.ok("PATCH", "/groups/fast", {"strategy": "rotate", "intents": {"talk": "the rest"}})
    reset = served.ok("PATCH", "/groups/fast", {"strategy": None})
    served.ok("DELETE", "/groups/fast")

    assert replaced == GROUP
    assert patched == GROUP | {"strategy": "rotate", "intents": {"talk": "the rest"}}
    assert reset == GROUP | {"intents": {"talk": "the rest"}}
    assert served.error("GET", "/groups/fast")[0] == 404


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"strategy": "best"}, "strategy"),
        ({"members": "meta/llama"}, "members"),
        ({"members": []}, "groups[fast].members"),
        ({"members": ["nobody"]}, "groups[fast].members[0]"),
        ({"members": ["group/fast"]}, "groups[fast].members"),
        ({"rules": [{"has_tools": True}]}, "rules.0.member"),
        ({"rules": [{"member": "meta/llama", "min_effort": "max"}]}, "rules.0.min_effort"),
        ({"rules": [{"member": "meta/llama", "tokens": 5}]}, "rules.0.tokens"),
        ({"rules": [{"member": "open/x"}]}, "groups[fast].rules[0].member"),
        ({"max_attempts": 0}, "groups[fast].max_attempts"),
        ({"id": "a b"}, "groups[a b].id"),
        ({"origin": "prod.yaml"}, "origin"),
        ({"name": "fast"}, "name"),
    ],
)
def test_group_that_cannot_be_used_is_refused_with_its_place(served: Api, changed: Any, path: str) -> None:
    status, error = served.error("POST", "/groups", GROUP | changed)

    assert (status, error["code"], Group.objects.count()) == (422, "invalid_configuration", 0)
    assert path in [problem["path"] for problem in error["problems"]]


def test_name_of_a_group_when_taken_or_changed_is_refused(served: Api) -> None:
    served.ok("POST", "/groups", GROUP)

    assert served.error("POST", "/groups", GROUP)[0] == 409
    assert served.error("PATCH", "/groups/fast", {"id": "slow"})[1]["param"] == "id"


def test_pool_that_a_group_names_is_not_deleted(served: Api) -> None:
    served.ok("POST", "/groups", GROUP)

    status, error = served.error("DELETE", "/pools/meta/llama")

    assert (status, error["param"]) == (422, "groups[fast].members[0]")


@pytest.mark.parametrize(("method", "body"), [("PUT", GROUP), ("PATCH", {}), ("DELETE", None)])
def test_group_of_a_file_is_not_changed(api: Api, method: str, body: Any) -> None:
    apply(
        "version: 1\npools: [{model: m, workers: [{name: w1, url: 'http://h'}]}]\ngroups: [{id: fast, members: [m]}]\n"
    )

    status, error = api.error(method, "/groups/fast", body)

    assert (status, error["code"]) == (409, "owner_conflict")
