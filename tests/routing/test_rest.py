from __future__ import annotations

import pytest

from gateway.routing.rest import Rest, RestReason


def test_rate_limit_without_a_hint_rests_longer_each_time_in_a_row():
    rest, lengths = Rest(), []
    for _ in range(11):
        now = rest.until
        rest.begin(RestReason.RATE_LIMIT, now)
        lengths.append(rest.until - now)
    assert lengths == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800]


def test_success_ends_the_row():
    rest = Rest()
    for _ in range(3):
        rest.begin(RestReason.RATE_LIMIT, 0)
    rest.succeeded()
    rest.begin(RestReason.RATE_LIMIT, 100)
    assert rest.until == 105


@pytest.mark.parametrize(
    ("reason", "hint_s", "length_s"),
    [
        (RestReason.RATE_LIMIT, 7.0, 7),
        (RestReason.RATE_LIMIT, 9999.0, 3600),
        (RestReason.QUOTA, None, 900),
        (RestReason.QUOTA, 86_400.0, 86_400),
        (RestReason.QUOTA, 1e9, 8 * 86_400),
        (RestReason.CREDIT, None, 1800),
        (RestReason.CREDENTIAL, 5.0, 60),
    ],
)
def test_rest_is_as_long_as_the_reason_and_the_hint_say(reason: RestReason, hint_s: float | None, length_s: float):
    rest = Rest()
    rest.begin(reason, 10, hint_s)
    assert (rest.until - 10, rest.reason, rest.since) == (length_s, reason, 10)
    assert (rest.is_on(10 + length_s - 0.1), rest.is_on(10 + length_s)) == (True, False)


def test_later_deadline_is_never_shortened():
    """Two overlapping calls: the first refusal names 1 s, the second none; both orders end at the later deadline."""
    rest = Rest()
    rest.begin(RestReason.RATE_LIMIT, 0, 1.0)
    rest.begin(RestReason.RATE_LIMIT, 0.25)
    assert rest.until == 10.25
    rest.begin(RestReason.RATE_LIMIT, 0.5, 1.0)
    rest.extend(RestReason.QUOTA, 0.5, 3.0)
    assert (rest.until, rest.reason, rest.since) == (10.25, RestReason.RATE_LIMIT, 0)


def test_cleared_rest_is_over():
    rest = Rest()
    rest.begin(RestReason.CREDIT, 0)
    rest.clear()
    assert (rest.is_on(0), rest.reason, rest.in_a_row) == (False, None, 0)
