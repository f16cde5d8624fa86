"""Token counts as workers report them (platform.openai.com/docs/api-reference/chat/object, read 2026-11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**40)]  # what a database column and a sum can hold


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of one answer. `cached` is the part of `input` that the worker had kept."""

    input: int
    output: int
    cached: int = 0


class _Details(msgspec.Struct):
    cached_tokens: _Tokens | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    prompt_tokens_details: _Details | None = None


_decode = msgspec.json.Decoder(_Usage).decode


def read_usage(raw: bytes | msgspec.Raw) -> TokenCount | None:
    """The counts of a `usage` object; None for null, for no counts at all, and for what is no such object."""
    try:
        usage = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    if usage.prompt_tokens is None and usage.completion_tokens is None:
        return None
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details is not None else None
    return TokenCount(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached or 0)
