"""API keys as text: how they are made, found and checked. Nothing here is stored but the prefix and the digest."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

_MARK = "sk-igw-"
_PREFIX_LENGTH = 8


def new_key(random: Callable[[int], bytes]) -> str:
    """`sk-igw-<prefix>-<secret>`, the secret being 256 random bits. `random(n)` returns n bytes."""
    prefix = random(6).hex()[:_PREFIX_LENGTH]
    secret = base64.urlsafe_b64encode(random(32)).rstrip(b"=").decode()
    return f"{_MARK}{prefix}-{secret}"


def prefix_of(text: str) -> str:
    """What a key is looked up by: its own prefix, or a short hash when it is a key that we did not make."""
    if text.startswith(_MARK) and text[len(_MARK) + _PREFIX_LENGTH : len(_MARK) + _PREFIX_LENGTH + 1] == "-":
        return text[len(_MARK) : len(_MARK) + _PREFIX_LENGTH]
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of(text: str, pepper: bytes) -> bytes:
    """HMAC-SHA256 of the whole text; the entropy of a key is high, so no slow hash is needed."""
    return hmac.digest(pepper, text.encode(), hashlib.sha256)
