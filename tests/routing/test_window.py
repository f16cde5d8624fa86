from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.window import SPAN_S, Window


def test_window_counts_for_ten_seconds():
    window = Window()
    window.add(0.0, is_good=True)
    window.add(5.0, is_good=False)
    assert [window.totals(now) for now in (5, 9.9, 10, 14.9, 15)] == [(1, 1), (1, 1), (0, 1), (0, 1), (0, 0)]


def test_window_cleared_is_empty():
    window = Window()
    window.add(3.0, is_good=True)
    window.clear()
    assert window.totals(3.0) == (0, 0)


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60))
def test_window_equals_a_list_of_what_happened(steps: list[tuple[float, bool]]):
    window, happened, now = Window(), deque[tuple[int, bool]](), 0.0
    for step, is_good in steps:
        now += step
        window.add(now, is_good=is_good)
        happened.append((int(now), is_good))
        kept = [good for second, good in happened if second > int(now) - SPAN_S]
        assert window.totals(now) == (kept.count(True), kept.count(False))
