"""runtime/document: an export that apply accepts, and differences."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.models import ApiKey, Group, Pool, Team, VendorAccount, Worker
from gateway.runtime.builder import build
from gateway.runtime.document import Change, diff, document, export, items
from gateway.runtime.importer import apply_file
from gateway.runtime.rows import read_rows
from gateway.runtime.secrets import account_owner, seal, worker_owner
from tests.runtime.configurations import SMALL

pytestmark = pytest.mark.django_db


def clear() -> None:
    for model in (Group, Pool, VendorAccount, Team):
        model.objects.all().delete()


def test_export_of_a_small_file_is_that_file() -> None:
    apply_file(SMALL, "small.yaml", "tester")
    (key,) = ApiKey.objects.all()
    assert document() == {
        "version": 1,
        "teams": [
            {
                "name": "green",
                "keys": [{"name": "app", "prefix": key.prefix, "digest": key.digest, "last4": "ters"}],
            }
        ],
        "accounts": [],
        "pools": [{"model": "small", "workers": [{"name": "w1", "url": "http://127.0.0.1:9101"}]}],
        "groups": [],
    }


def test_export_applied_to_an_empty_database_gives_the_same_snapshot_and_export(rich: str) -> None:
    apply_file(rich, "rich.yaml", "tester")
    written, fingerprint = export(), build(0).fingerprint
    clear()
    apply_file(written, "written.yaml", "tester")
    assert (build(0).fingerprint, export()) == (fingerprint, written)


def test_export_adopted_in_its_own_database_changes_owners_only(rich: str) -> None:
    apply_file(rich, "rich.yaml", "tester")
    written = export()
    change = apply_file(written, "written.yaml", "tester", adopt=True)
    assert {tuple(c.fields) for c in change.changes} == {("origin",)}
    assert export() == written


def test_export_holds_no_secret_in_clear(rich: str) -> None:
    apply_file(rich, "rich.yaml", "tester")
    written = export()
    for secret in ("worker-secret", "sk-vendor-secret", "a-literal-key", "from-a-file", "s" * 43):
        assert secret in rich or secret not in written
        assert secret not in written


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
workers = st.fixed_dictionaries(
    {"url": st.sampled_from(["http://h", "https://h.example:8443/v1/", "http://[::1]:9"])},
    optional={
        "weight": st.integers(1, 10_000),
        "max_in_flight": st.none() | st.integers(1, 2**31 - 1),
        "upstream_model": st.sampled_from(["", "m: {x}", "- y", "null", "4", "日本"]),
        "profiles": st.just([{"services": ["chat"], "streaming": None}]),
        "labels": st.dictionaries(st.sampled_from(["zone", "7", "on", "é"]), st.sampled_from(["b", "", "1", "true"])),
        "state": st.sampled_from(["active", "draining", "disabled"]),
    },
)
pools = st.fixed_dictionaries(
    {},
    optional={
        "upstream_model": st.sampled_from(["", "off", "1.0", "a b"]),
        "policy": st.sampled_from(["round_robin", "random", "least_requests"]),
        "requests_per_minute": st.none() | st.integers(1, 2**31 - 1),
        "queue": st.fixed_dictionaries({}, optional={"size": st.integers(0, 9), "timeout_s": st.floats(0.01, 600)}),
        "timeouts": st.fixed_dictionaries({}, optional={"idle_s": st.integers(1, 60) | st.floats(0.05, 3600)}),
        "health": st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "path": st.just("/a?b={c}&d=#e")}),
        "history": st.sampled_from(["full", "metadata", "off"]),
        "stream_usage": st.booleans(),
        "is_enabled": st.booleans(),
    },
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(names, st.tuples(pools, st.dictionaries(names, workers, min_size=1, max_size=3)), max_size=3), names
)
def test_any_configuration_survives_export_and_apply(configuration: dict[str, Any], literal: str) -> None:
    clear()
    account = VendorAccount.objects.create(name="a", base_url="http://v", secret=seal(literal, account_owner("a")))
    Pool.objects.create(model="of-vendor-account", account=account)
    for model, (columns, its_workers) in configuration.items():
        pool = Pool.objects.create(model=model, **columns)
        for name, worker in its_workers.items():
            Worker.objects.create(pool=pool, name=name, secret=seal(name, worker_owner(model, name)), **worker)
    written, fingerprint = export(), build(0).fingerprint
    clear()
    apply_file(written, "written.yaml", "tester")
    assert (build(0).fingerprint, export()) == (fingerprint, written)


def test_difference_tells_what_was_made_changed_and_removed() -> None:
    team = Team.objects.create(name="t")
    gone = Pool.objects.create(model="gone", is_enabled=False, max_in_flight=3)
    pool = Pool.objects.create(model="m", is_enabled=False, queue={"size": 4})
    before = items(read_rows())
    gone.delete()
    Pool.objects.filter(pk=pool.pk).update(model="n", queue={"size": 4, "timeout_s": 2}, origin="api")
    Worker.objects.create(pool=pool, name="w", url="http://h", secret="env:NAME")
    expiry = datetime(2030, 1, 1, tzinfo=UTC)
    ApiKey.objects.create(team=team, name="k", prefix="p", digest="d", last4="l", source="env:K", expires_at=expiry)
    assert diff(before, items(read_rows())) == [
        Change(
            "delete",
            "pool",
            "gone",
            {"model": ("gone", None), "max_in_flight": (3, None), "enabled": (False, None)},
        ),
        Change(
            "create",
            "key",
            "t/k",
            {"name": (None, "k"), "expires": (None, "2030-01-01T00:00:00+00:00"), "key": "changed"},
        ),
        Change(
            "update",
            "pool",
            "n",
            {"model": ("m", "n"), "queue": ({"size": 4}, {"size": 4, "timeout_s": 2.0}), "origin": ("admin", "api")},
        ),
        Change("create", "worker", "n/w", {"name": (None, "w"), "url": (None, "http://h"), "api_key": "changed"}),
    ]


def test_options_that_say_the_default_are_no_difference() -> None:
    Pool.objects.create(model="m", is_enabled=False)
    before = items(read_rows())
    Pool.objects.update(queue={"timeout_s": 1}, retry={"max_attempts": 2})
    assert diff(before, items(read_rows())) == []
