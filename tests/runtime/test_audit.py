"""runtime/audit: every way of rewriting the trail shows."""

from __future__ import annotations

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from gateway.models import AuditEvent, Pool, Team
from gateway.runtime.audit import Verdict, verify
from gateway.runtime.edit import edit

pytestmark = pytest.mark.django_db


def make_trail() -> list[int]:
    """Three events of two edits; their ids."""
    with edit("alice", "admin"):
        Team.objects.create(name="one")
        Pool.objects.create(model="m", is_enabled=False, queue={"timeout_s": 2.0, "size": 3}, timeouts={"idle_s": 0.05})
    with edit("bob", "admin"):
        Team.objects.create(name="two")
    return list(AuditEvent.objects.order_by("pk").values_list("pk", flat=True))


def rewrite(statement: str, *values: object) -> None:
    """What somebody with all rights in the database can do."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no triggers
        cursor.execute(statement, values)


def test_empty_trail_is_whole() -> None:
    assert verify() == Verdict(0, "", None)


def test_trail_as_written_is_whole() -> None:
    make_trail()
    assert verify() == Verdict(3, AuditEvent.objects.order_by("pk").last().chain, None)


def test_trail_written_under_an_old_key_is_whole(settings: Settings) -> None:
    settings.AUDIT_KEYS = [b"old"]
    make_trail()
    settings.AUDIT_KEYS = [b"new", b"old"]
    with edit("carol", "admin"):
        Team.objects.create(name="three")
    assert (verify().count, verify().broken_at) == (4, None)
    settings.AUDIT_KEYS = [b"new"]
    assert verify().count == 0


@pytest.mark.parametrize("column", ["actor", "object", "kind", "origin", "action"])
def test_changed_event_breaks_the_chain_at_its_place(column: str) -> None:
    _, second, _ = make_trail()
    rewrite(f"UPDATE gateway_auditevent SET {column} = 'x' WHERE id = %s", second)  # fixed names
    assert (verify().count, verify().broken_at) == (1, second)


def test_removed_event_breaks_the_chain_after_it() -> None:
    first, second, _ = make_trail()
    rewrite("DELETE FROM gateway_auditevent WHERE id = %s", first)
    assert (verify().count, verify().broken_at) == (0, second)


def test_changed_document_of_a_revision_breaks_the_chain() -> None:
    *_, third = make_trail()
    rewrite("UPDATE gateway_configrevision SET document = '{}' WHERE actor = 'bob'")
    assert (verify().count, verify().broken_at) == (2, third)
