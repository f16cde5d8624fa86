from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.limiter import RollingWindow


def test_window_counts_calls_of_last_minute():
    window = RollingWindow()
    window.add(2, 10.9)
    window.add(1, 11.2)
    assert [window.used(now) for now in (11.2, 70.9, 71.0, 72.0)] == [3, 3, 1, 0]


def test_window_give_back_takes_latest_call_off():
    window = RollingWindow()
    window.add(1, 10)
    window.add(1, 20)
    window.give_back()
    assert (window.used(20), window.used(71)) == (1, 0)


def test_window_give_back_of_nothing_changes_nothing():
    window = RollingWindow()
    window.give_back()
    assert window.used(0) == 0


def test_window_free_in_names_time_until_so_many_are_forgotten():
    window = RollingWindow()
    window.add(2, 10.5)
    window.add(1, 20.5)
    assert [window.free_in(calls, 30.0) for calls in (0, 1, 2, 3, 9)] == [0, 41, 41, 51, 51]


@given(st.lists(st.floats(0, 30, allow_nan=False), max_size=80), st.integers(1, 8))
def test_window_as_limit_never_allows_more_in_any_minute(gaps: list[float], limit: int):
    window, now, allowed = RollingWindow(), 0.0, []
    for gap in gaps:
        now += gap
        if window.used(now) < limit:
            window.add(1, now)
            allowed.append(now)
    assert all(sum(start <= at < start + 60 for at in allowed) <= limit for start in allowed)


@given(st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=40), st.integers(1, 8))
def test_window_after_free_in_has_room(gaps: list[float], calls: int):
    window, now = RollingWindow(), 0.0
    for gap in gaps:
        now += gap
        window.add(1, now)
    used = window.used(now)
    later = now + window.free_in(calls, now) + 1e-6  # the sum may fall just short of the second
    assert window.used(later) <= max(0, used - calls)
