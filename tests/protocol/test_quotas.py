from __future__ import annotations

import pytest

from gateway.protocol.quotas import read_quota, read_retry_after

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [(b"120ms", 0.12), (b"6m0s", 360), (b"1h2m3s", 3723), (b"1d", 86_400), (b"2.5s", 2.5), (b"", 0), (b"soon", 0)],
)
def test_quota_of_openai_headers_has_share_used_and_reset(reset: bytes, seconds: float):
    headers = [
        (b"x-ratelimit-limit-requests", b"100"),
        (b"x-ratelimit-remaining-requests", b"25"),
        (b"x-ratelimit-reset-requests", reset),
    ]
    assert read_quota(headers, NOW) == (0.75, pytest.approx(seconds))


def test_quota_of_two_windows_is_the_fuller_one():
    headers = [
        (b"x-ratelimit-limit-requests", b"100"),
        (b"x-ratelimit-remaining-requests", b"90"),
        (b"x-ratelimit-limit-tokens", b"1000"),
        (b"x-ratelimit-remaining-tokens", b"100"),
        (b"x-ratelimit-reset-tokens", b"9s"),
    ]
    assert read_quota(headers, NOW) == (pytest.approx(0.9), 9)


def test_quota_of_anthropic_headers_counts_to_the_time_of_reset():
    headers = [
        (b"anthropic-ratelimit-tokens-limit", b"50"),
        (b"anthropic-ratelimit-tokens-remaining", b"0"),
        (b"anthropic-ratelimit-tokens-reset", b"2027-01-15T08:01:00Z"),
    ]
    assert read_quota(headers, NOW) == (1.0, 60)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-ratelimit-limit-requests", b"100")],
        [(b"x-ratelimit-limit-requests", b"0"), (b"x-ratelimit-remaining-requests", b"0")],
        [(b"x-ratelimit-limit-requests", b"many"), (b"x-ratelimit-remaining-requests", b"1")],
    ],
)
def test_quota_that_is_not_told_is_none(headers: list[tuple[bytes, bytes]]):
    assert read_quota(headers, NOW) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"7", 7),
        (b" 1.5 ", 1.5),
        (b"Fri, 15 Jan 2027 08:01:00 GMT", 60),
        (b"Fri, 15 Jan 2027 07:00:00 GMT", 0),
        (b"-3", None),
        (b"later", None),
        (b"9" * 40, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: bytes, seconds: float | None):
    assert read_retry_after(value, NOW) == seconds
