"""One hash over what a snapshot says, whatever ids its rows have: equal in every database that holds the same."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from gateway.routing.snapshot import Snapshot

_LEFT_OUT = {"id", "team_id", "created_s", "revision", "fingerprint", "names"}  # names follow from the pools


def fingerprint(snapshot: Snapshot) -> str:
    """SHA-256 over a canonical form in which secrets stand as keyed digests."""
    text = json.dumps(_plain(snapshot), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return {name: _field(name, getattr(value, name)) for name in _names(value.__class__)}


@functools.cache
def _names(group: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(group) if field.name not in _LEFT_OUT]


def _field(name: str, value: Any) -> Any:
    if name == "credential" and value is not None:
        return hmac.digest(settings.SEAL_KEYS[0], value.encode(), hashlib.sha256).hex()
    return _plain(value)
