"""runtime/keys: a key is shown once and never stored."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pytest_django.fixtures import Settings

from gateway.models import ApiKey, Team
from gateway.protocol.apikeys import digest_of, prefix_of
from gateway.runtime.builder import build
from gateway.runtime.keys import imprint, issue_key

pytestmark = pytest.mark.django_db


def test_issued_key_is_in_the_snapshot_by_prefix_and_digest(settings: Settings) -> None:
    settings.KEY_PEPPERS = [b"new", b"old"]
    expiry = datetime(2030, 1, 1, tzinfo=UTC)
    team = Team.objects.create(name="t")
    text = issue_key(team, "k", origin="api", models=["m"], requests_per_minute=5, is_operator=True, expires_at=expiry)
    key = build(1).keys[prefix_of(text)]
    assert (key.name, key.team, key.models, key.requests_per_min) == ("k", "t", frozenset({"m"}), 5)
    assert (key.is_operator, key.expires_s, key.digest) == (True, expiry.timestamp(), digest_of(text, b"new"))


def test_issued_key_is_not_stored() -> None:
    text = issue_key(Team.objects.create(name="t"), "k", origin="api")
    stored = ApiKey.objects.values().get()
    assert (text.startswith("sk-igw-"), len(text), stored["last4"]) == (True, 59, text[-4:])
    assert text[-43:] not in str(stored)


def test_imprint_of_the_same_text_leaves_a_digest_of_an_old_pepper_alone(settings: Settings) -> None:
    settings.KEY_PEPPERS = [b"old"]
    key = ApiKey()
    imprint(key, "t" * 32)
    settings.KEY_PEPPERS = [b"new", b"old"]
    imprint(key, "t" * 32, "env:NAME")
    assert (key.digest, key.source) == (digest_of("t" * 32, b"old").hex(), "env:NAME")
    imprint(key, "u" * 32)
    assert (key.digest, key.source) == (digest_of("u" * 32, b"new").hex(), "")
