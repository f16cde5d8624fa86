"""gateway/models: what the database itself holds, whoever writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError

from gateway.models import ApiKey, Pool, Team, VendorAccount, Worker

pytestmark = pytest.mark.django_db


def make_key(team: Team, name: str, prefix: str) -> ApiKey:
    return ApiKey.objects.create(team=team, name=name, prefix=prefix, digest="d", last4="l")


def make_twins(make: Callable[[], Any]) -> None:
    make()
    make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Team.objects.create(name="t"),
        lambda: VendorAccount.objects.create(name="a", base_url="http://h"),
        lambda: Pool.objects.create(model="m"),
        lambda: Worker.objects.create(pool=Pool.objects.get_or_create(model="m")[0], name="w", url="http://h"),
        lambda: make_key(Team.objects.get_or_create(name="t")[0], "k", "p"),
    ],
)
def test_name_is_taken_once(make: Callable[[], Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        make_twins(make)


def test_prefix_of_a_key_may_change_hands_but_is_unique_in_the_end() -> None:
    team = Team.objects.create(name="t")
    first = make_key(team, "a", "p")
    make_key(team, "b", "p")
    first.delete()
    connection.check_constraints()
    make_key(team, "c", "p")
    with pytest.raises(IntegrityError), transaction.atomic():
        connection.check_constraints()
    ApiKey.objects.all().delete()


def test_account_in_use_is_protected() -> None:
    account = VendorAccount.objects.create(name="a", base_url="http://h")
    Pool.objects.create(model="m", account=account)
    with pytest.raises(ProtectedError):
        account.delete()


def test_worker_on_a_one_word_host_passes_the_forms_check() -> None:
    pool = Pool.objects.create(model="m")
    Worker(pool=pool, name="w", url="http://worker-1:8000").full_clean()
    with pytest.raises(ValidationError):
        Worker(pool=pool, name="w 1", url="http://worker-1:8000").full_clean()


def test_new_key_may_use_every_model() -> None:
    assert ApiKey().models == ["*"]


def test_migrations_are_those_of_the_models() -> None:
    call_command("makemigrations", "gateway", "--check", "--dry-run", verbosity=0)
