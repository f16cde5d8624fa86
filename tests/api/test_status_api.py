"""Status, revisions, and how the control API fails."""

from __future__ import annotations

import logging
import time

import pytest
import redis
from django.conf import settings
from django.db import connection
from django.test import Client
from pytest_django import Settings

from gateway.models import ConfigRevision, VendorAccount, Worker
from gateway.runtime.edit import edit
from gateway.runtime.health_board import TICK
from tests.api.objects import BASE, POOL, Api


@pytest.fixture
def tick() -> None:
    """The last probes were 3 s ago."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.set(TICK, time.time() - 3, px=60_000)
        yield
        client.delete(TICK)


def test_status_tells_revision_pools_and_probes(api: Api, tick: None) -> None:
    api.ok("POST", "/pools", POOL | {"model": "a"})
    Worker.objects.update(health="healthy")

    status = api.ok("GET", "/status")

    newest = ConfigRevision.objects.latest("pk").pk
    assert (status["revision"], status["problems"], status["warnings"]) == (newest, [], [])
    assert status["pools"] == [
        {"model": "a", "enabled": True, "workers": 1, "healthy": 1, "unhealthy": 0, "unknown": 0}
    ]
    assert 3 <= status["probe_age_s"] < 13


def test_status_without_redis_knows_no_probes(api: Api, settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert api.ok("GET", "/status")["probe_age_s"] is None


def test_status_says_why_the_configuration_cannot_be_used(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IGW_TEST_KEY", "secret")
    with edit("tests", "admin"):
        VendorAccount.objects.create(name="main", base_url="https://example.test", secret="env:IGW_TEST_KEY")
    monkeypatch.delenv("IGW_TEST_KEY")

    assert api.ok("GET", "/status")["problems"] == [
        {"path": "accounts[main].api_key", "message": "the environment variable IGW_TEST_KEY is not set"}
    ]


def test_revisions_are_listed_from_the_newest(api: Api) -> None:
    api.ok("POST", "/pools", POOL)

    newest, *_ = api.ok("GET", "/revisions?limit=1")["items"]

    assert (newest["actor"], newest["origin"]) == ("key demo/ops", "api")
    assert newest["summary"] == "create pool meta/llama, create worker meta/llama/w1"
    assert api.ok("GET", "/revisions")["count"] == 2


def test_path_that_is_none_is_an_error_object(api: Api) -> None:
    assert api.error("GET", "/nothing")[1]["code"] == "not_found"
    assert Client().get("/api/v2/pools").json()["error"]["code"] == "not_found"


def test_method_that_is_not_possible_says_which_are(api: Api) -> None:
    status, error = api.error("PUT", "/teams")

    assert (status, error["code"]) == (405, "method_not_allowed")
    assert api("PUT", "/teams").headers["Allow"] in {"GET, POST", "POST, GET"}


def test_failure_inside_is_logged_and_not_told(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("canary-detail")

    with caplog.at_level(logging.ERROR, "gateway.api.errors"), connection.execute_wrapper(fail):
        status, error = api.error("GET", "/status")

    assert (status, error["code"]) == (500, "internal_error")
    assert "canary-detail" not in str(error)
    assert "canary-detail" in caplog.text


def test_answer_of_the_api_sets_no_cookie(api: Api) -> None:
    assert not api("GET", "/pools").cookies
    assert BASE in Client().get("/api/docs").content.decode()
