"""API keys: one way to make them, whoever asks (command, admin, control API)."""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from datetime import datetime

from django.conf import settings

from gateway.models import ApiKey, Team
from gateway.protocol.apikeys import digest_of, new_key, prefix_of

LEAST_CHARACTERS = 32  # of a key that an operator brings along: no slow hash protects a guessable one


def issue_key(
    team: Team,
    name: str,
    *,
    origin: str,
    models: Sequence[str] = ("*",),
    requests_per_minute: int | None = None,
    is_operator: bool = False,
    expires_at: datetime | None = None,
) -> str:
    """Make a key, inside an edit, and return its text: the only time that anybody sees it."""
    key = ApiKey(
        team=team,
        name=name,
        models=list(models),
        requests_per_minute=requests_per_minute,
        is_operator=is_operator,
        expires_at=expires_at,
        origin=origin,
    )
    text = mint(key)
    key.save()
    return text


def mint(key: ApiKey) -> str:
    """Give an unsaved or existing row a new text, and return that."""
    text = new_key(os.urandom)
    imprint(key, text)
    return text


def imprint(key: ApiKey, text: str, source: str = "") -> None:
    """Let the row stand for this text; `source` is the reference it came from, if any."""
    key.source = source
    if not any(hmac.compare_digest(digest_of(text, pepper).hex(), key.digest) for pepper in settings.KEY_PEPPERS):
        key.prefix, key.last4 = prefix_of(text), text[-4:]
        key.digest = digest_of(text, settings.KEY_PEPPERS[0]).hex()
