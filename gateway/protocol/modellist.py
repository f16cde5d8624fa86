"""The answers of `GET /v1/models` and `/v1/models/{id}` (platform.openai.com/docs/api-reference/models, 2026-11)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


def model_entry(name: str, created_s: int) -> bytes:
    """One model as JSON; `created_s` is Unix time."""
    return msgspec.json.encode(_entry(name, created_s))


def model_list(models: Sequence[tuple[str, int]]) -> bytes:
    """Models by name and time of creation as the list object, sorted by name."""
    return msgspec.json.encode({"object": "list", "data": [_entry(*model) for model in sorted(models)]})


def _entry(name: str, created_s: int) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": created_s, "owned_by": "igw"}
