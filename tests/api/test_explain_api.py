"""Where would a request go: asked of a live table over the API, for real pools, groups and drafts."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.pipeline.explain import Explainer
from gateway.pipeline.inquiry import Inquirer
from gateway.pipeline.members import Members
from gateway.policies.registry import POLICIES
from gateway.routing.rest import RestReason
from gateway.routing.snapshot import Snapshot
from gateway.routing.table import Table
from gateway.runtime.builder import build_newest
from gateway.runtime.live import live
from gateway.services.registry import SERVICES
from tests.api.objects import Api

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WORKERS = [{"name": name, "url": f"http://127.0.0.1:910{at}"} for at, name in enumerate("ab")]


class Gateway:
    """A table on an event loop of its own, as a process has it."""

    def __init__(self) -> None:
        self.table = Table({name: entry.make for name, entry in POLICIES.items()}, random.random)
        inquirer = Inquirer(lambda: "", time.monotonic, time.time, lambda exchange: None)
        members = Members(self.table, inquirer, random.random, time.monotonic, time.time)
        self._explainer = Explainer(self.table, SERVICES, members, time.monotonic)
        self.loop = asyncio.new_event_loop()

    async def take_up(self, snapshot: Snapshot) -> None:
        self.table.apply(snapshot)
        live.open(self._explainer, lambda: snapshot)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    made = Gateway()
    thread = threading.Thread(target=made.loop.run_forever)
    thread.start()
    yield made
    live.close()
    made.loop.call_soon_threadsafe(made.loop.stop)
    thread.join()
    made.loop.close()


def load(gateway: Gateway) -> None:
    """Take the configuration up, as a process does after the bell."""
    asyncio.run_coroutine_threadsafe(gateway.take_up(build_newest()), gateway.loop).result(5)


def test_explain_names_choice_candidates_and_terms(api: Api, gateway: Gateway) -> None:
    api.ok("POST", "/pools", {"model": "m", "policy": "least_requests", "workers": WORKERS})
    load(gateway)
    found = api.ok("POST", "/explain", {"request": ASK})
    (pool,) = found["pools"]
    assert (found["asked"], found["route"]) == ("m", None)
    assert (pool["pool"], pool["policy"], pool["chosen"]) == ("m", "least_requests", "a")
    assert [candidate["worker"] for candidate in pool["candidates"]] == ["a", "b"]
    assert all(candidate["terms"]["calls"] == 0 for candidate in pool["candidates"])


def test_explain_says_why_a_worker_is_no_candidate(api: Api, gateway: Gateway) -> None:
    api.ok("POST", "/pools", {"model": "m", "workers": [*WORKERS, {**WORKERS[0], "name": "c", "state": "draining"}]})
    load(gateway)
    worker = next(each for each in gateway.table.workers() if each.spec.name == "a")
    worker.rest.begin(RestReason.RATE_LIMIT, time.monotonic())
    (pool,) = api.ok("POST", "/explain", {"request": ASK})["pools"]
    assert pool["chosen"] == "b"
    assert pool["excluded"] == [{"worker": "a", "reason": "resting"}, {"worker": "c", "reason": "draining"}]


def test_explain_changes_nothing(api: Api, gateway: Gateway) -> None:
    api.ok("POST", "/pools", {"model": "m", "policy": "round_robin", "workers": WORKERS})
    load(gateway)
    chosen = [api.ok("POST", "/explain", {"request": ASK})["pools"][0]["chosen"] for _ in range(3)]
    assert chosen == ["a"] * 3


def test_explain_of_a_draft_uses_the_draft_and_saves_nothing(api: Api, gateway: Gateway) -> None:
    api.ok("POST", "/pools", {"model": "m", "policy": "random", "workers": WORKERS})
    load(gateway)
    worker = next(each for each in gateway.table.workers() if each.spec.name == "a")
    for _ in range(5):
        worker.breaker.failed(time.monotonic())
    draft = {"model": "m", "policy": "passthrough", "workers": [*WORKERS, {**WORKERS[0], "name": "new"}]}
    (pool,) = api.ok("POST", "/explain", {"request": ASK, "draft": draft})["pools"]
    assert (pool["policy"], pool["chosen"]) == ("passthrough", "b")
    assert pool["excluded"] == [{"worker": "a", "reason": "circuit open"}]
    assert api.ok("GET", "/pools/m")["policy"] == "random"


def test_explain_of_a_wrong_draft_lists_what_is_wrong(api: Api, gateway: Gateway) -> None:
    load(gateway)
    status, error = api.error("POST", "/explain", {"request": ASK, "draft": {"model": "m", "policy": "none"}})
    assert status == 422
    assert "pools[m].policy" in str(error)


def test_explain_of_a_group_lists_its_walk(api: Api, gateway: Gateway) -> None:
    for model in ("m", "n"):
        api.ok("POST", "/pools", {"model": model, "workers": WORKERS})
    rules = [{"member": "n", "has_tools": True}]
    api.ok("POST", "/groups", {"id": "g", "members": ["m", "n"], "rules": rules})
    load(gateway)
    asks = {**ASK, "model": "group/g", "tools": [{"type": "function", "function": {"name": "f"}}]}
    found = api.ok("POST", "/explain", {"request": asks})
    assert [pool["pool"] for pool in found["pools"]] == ["n", "m"]
    assert (found["route"]["rule"], found["route"]["steps"][0]["why"]) == ("tools", "rule: tools")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"request": {**ASK, "model": "nobody"}}, 404),
        ({"request": {"model": "m"}}, 400),
        ({"request": ASK, "service": "telepathy"}, 400),
        ({"request": ASK, "headers": {"x-igw-priority": "urgent"}}, 400),
        ({"request": ASK, "key": "demo/nobody"}, 404),
        ({"request": ASK, "extra": 1}, 422),
    ],
)
def test_explain_of_a_bad_question_says_so(api: Api, gateway: Gateway, body: Any, status: int) -> None:
    api.ok("POST", "/pools", {"model": "m", "workers": WORKERS})
    load(gateway)
    assert api.error("POST", "/explain", body)[0] == status


def test_explain_as_a_key_has_its_rights(api: Api, gateway: Gateway) -> None:
    api.ok("POST", "/pools", {"model": "m", "workers": WORKERS})
    api.ok("POST", "/keys", {"team": "demo", "name": "narrow", "models": ["other"]})
    load(gateway)
    assert api.error("POST", "/explain", {"request": ASK, "key": "demo/narrow"})[0] == 403


def test_explain_without_a_gateway_in_the_process_is_unavailable(api: Api) -> None:
    assert api.error("POST", "/explain", {"request": ASK})[0] == 503


def test_fleet_tells_of_every_worker_how_it_stands(api: Api) -> None:
    api.ok("POST", "/pools", {"model": "m", "workers": [*WORKERS, {**WORKERS[0], "name": "c", "state": "disabled"}]})
    page = api.ok("GET", "/fleet")
    assert [(item["worker"], item["state"], item["health"], item["rest"]) for item in page["items"]] == [
        ("a", "active", "unknown", None),
        ("b", "active", "unknown", None),
        ("c", "disabled", "unknown", None),
    ]
    assert page["count"] == 3
