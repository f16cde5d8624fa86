from __future__ import annotations

import hashlib
import hmac
import re

import pytest

from gateway.protocol.apikeys import digest_of, new_key, prefix_of


def test_new_key_is_made_of_the_given_bytes() -> None:
    key = new_key(lambda count: bytes(range(200, 200 + count)))
    assert re.fullmatch(r"sk-igw-[0-9a-f]{8}-[A-Za-z0-9_-]{43}", key)
    assert prefix_of(key) == key[7:15]
    assert key == new_key(lambda count: bytes(range(200, 200 + count)))
    assert key != new_key(lambda count: bytes(count))


@pytest.mark.parametrize(
    "text", ["a key of our own choice, 32 letters", "sk-igw-short", "", "sk-igw-12345678", "schlüssel"]
)
def test_prefix_of_a_foreign_key_is_a_short_hash(text: str) -> None:
    assert prefix_of(text) == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_digest_is_a_hmac_over_the_whole_text() -> None:
    assert digest_of("sk-igw-é", b"pepper") == hmac.new(b"pepper", "sk-igw-é".encode(), hashlib.sha256).digest()
    assert digest_of("sk-igw-é", b"other") != digest_of("sk-igw-é", b"pepper")
