"""When the schema counts as current, and what the summary says."""

from __future__ import annotations

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from gateway.launch.ready import is_schema_current, until_status
from gateway.launch.summary import Place, summary


def database_url() -> str:
    """The test database, which pytest-django made beside the one of the settings."""
    return f"{settings.DATABASE_URL.rpartition('/')[0]}/{connection.settings_dict['NAME']}"


@pytest.mark.django_db
def test_schema_after_migrate_is_current() -> None:
    assert is_schema_current(database_url(), settings.INSTALLED_APPS)


@pytest.mark.django_db(transaction=True)
def test_schema_without_one_migration_is_not_current() -> None:
    with psycopg.connect(database_url(), autocommit=True) as link:
        row = "app = 'gateway' and name = '0001_initial'"
        link.execute(f"update django_migrations set name = 'other' where {row}")
        try:
            assert not is_schema_current(database_url(), settings.INSTALLED_APPS)
        finally:
            link.execute("update django_migrations set name = '0001_initial' where app = 'gateway' and name = 'other'")


def test_schema_of_an_empty_database_is_not_current() -> None:
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as link:
        link.execute("create database igw_launch_empty")
        try:
            assert not is_schema_current(
                f"{settings.DATABASE_URL.rpartition('/')[0]}/igw_launch_empty", settings.INSTALLED_APPS
            )
        finally:
            link.execute("drop database igw_launch_empty")


async def test_until_status_with_nobody_listening_is_false() -> None:
    assert await until_status("127.0.0.1", 1, "/live", 200, 0.1) is False


def test_summary_at_the_first_start_shows_login_key_and_a_call() -> None:
    made = {"admin_password": "pw", "api_key": "sk-igw-1"}
    assert summary(Place("0.0.0.0", 8000, 8001), seconds=3.21, is_ready=True, made=made).splitlines() == [
        "",
        "IGW is ready after 3.2 s",
        "  calls      http://127.0.0.1:8000/v1",
        "  admin      http://127.0.0.1:8001/admin/",
        "  API docs   http://127.0.0.1:8001/api/docs",
        "  login      admin / pw",
        "  API key    sk-igw-1",
        "  try it",
        "    curl -sS http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\",
        '      -H "Authorization: Bearer sk-igw-1" \\',
        """      -d '{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}]}'""",
        "Ctrl-C stops everything.",
    ]


def test_summary_later_shows_no_secret() -> None:
    lines = summary(Place("::1", 8000, None), seconds=1, is_ready=False, made={}).splitlines()
    assert lines[1:7] == [
        "IGW runs, but is not ready, after 1.0 s",
        "  calls      http://[::1]:8000/v1",
        "  admin      http://[::1]:8000/admin/",
        "  API docs   http://[::1]:8000/api/docs",
        "  not ready  http://[::1]:8000/ready says why",
        "  API key    made at the first start; `manage.py create_key --team demo --name N` makes another",
    ]
    assert '      -H "Authorization: Bearer $IGW_API_KEY" \\' in lines


def test_summary_without_a_demo_is_short() -> None:
    assert len(summary(Place("127.0.0.1", 8000, None), seconds=1, is_ready=True, made=None).splitlines()) == 6
