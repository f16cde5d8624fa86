from __future__ import annotations

import pytest

from gateway.protocol.usage import TokenCount, read_usage


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}', TokenCount(7, 5, 0)),
        (b'{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":3,"audio_tokens":0}}', TokenCount(7, 0, 3)),
        (b'{"completion_tokens":5,"prompt_tokens":null,"prompt_tokens_details":null}', TokenCount(0, 5, 0)),
        (b"null", None),
        (b"{}", None),
        (b"", None),
        (b"5", None),
        (b'{"prompt_tokens":-1}', None),
        (b'{"prompt_tokens":1e30}', None),
        (b'{"prompt_tokens":9999999999999999999}', None),
        (b'{"prompt_tokens":"7"}', None),
        (b'{"x":' + b"[" * 100_000, None),
    ],
)
def test_usage_object_is_read(raw: bytes, expected: TokenCount | None) -> None:
    assert read_usage(raw) == expected
