"""The login form: how many wrong passwords it takes."""

from __future__ import annotations

import logging
import uuid

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import reverse
from pytest_django import Settings

from admin_ui.login import TRIES

LOGIN = reverse("admin:login")
PASSWORD = "correct horse battery"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cheap_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def username() -> str:
    """Somebody nobody has counted yet."""
    return User.objects.create_superuser(f"u{uuid.uuid4().hex[:12]}", password=PASSWORD).username


def log_in(username: str, password: str, address: str = "192.0.2.1") -> HttpResponse:
    return Client().post(LOGIN, {"username": username, "password": password}, REMOTE_ADDR=address)  # type: ignore[return-value]


def wrong(username: str, times: int, address: str = "192.0.2.1") -> None:
    for _ in range(times):
        log_in(username, "wrong", address)


def test_login_after_four_wrong_passwords_succeeds(username: str) -> None:
    wrong(username, TRIES - 1)

    assert log_in(username, PASSWORD).status_code == 302


def test_login_after_five_wrong_passwords_is_refused(username: str) -> None:
    wrong(username, TRIES)

    assert log_in(username, PASSWORD).status_code == 200


def test_login_from_another_address_is_not_refused(username: str) -> None:
    wrong(username, TRIES)

    assert log_in(username, PASSWORD, "192.0.2.2").status_code == 302


def test_login_from_the_same_ipv6_network_is_refused(username: str) -> None:
    wrong(username, TRIES, "2001:db8::1")

    assert log_in(username, PASSWORD, "2001:db8::ffff").status_code == 200


def test_login_that_succeeds_starts_the_count_anew(username: str) -> None:
    wrong(username, TRIES - 1)
    log_in(username, PASSWORD)
    wrong(username, TRIES - 1)

    assert log_in(username, PASSWORD).status_code == 302


def test_login_is_refused_in_the_same_words_for_whoever(username: str) -> None:
    unknown = f"x{uuid.uuid4().hex[:12]}"
    wrong(username, TRIES)

    answers = [log_in(username, PASSWORD), log_in(unknown, "wrong")]

    errors = [answer.context["form"].errors for answer in answers]  # type: ignore[attr-defined]
    assert errors[0] == errors[1]


def test_login_without_redis_is_not_limited_and_logged(username: str, caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(REDIS_URL="redis://127.0.0.1:1/0"), caplog.at_level(logging.WARNING, "admin_ui.login"):
        wrong(username, TRIES + 1)
        answer = log_in(username, PASSWORD)

    assert answer.status_code == 302
    assert {record.getMessage() for record in caplog.records} == {"logins are not counted"}
