from __future__ import annotations

from gateway.routing.health import Health, HealthCounter


def fed(*results: bool) -> list[tuple[bool, Health]]:
    counter = HealthCounter(failure_threshold=3, success_threshold=2)
    return [(counter.feed(result), counter.state) for result in results]


def test_counter_successes_below_threshold_stays_unknown():
    assert fed(True) == [(False, Health.UNKNOWN)]


def test_counter_enough_successes_turns_healthy_once():
    assert fed(True, True, True)[1:] == [(True, Health.HEALTHY), (False, Health.HEALTHY)]


def test_counter_enough_failures_turns_unhealthy():
    assert fed(False, False, False)[-1] == (True, Health.UNHEALTHY)


def test_counter_opposite_result_ends_streak_and_keeps_state():
    assert fed(True, True, False, False, True, False, False)[-1] == (False, Health.HEALTHY)


def test_counter_taken_up_from_stored_values_goes_on_counting():
    counter = HealthCounter(3, 2, state=Health.HEALTHY, streak=-2)
    assert (counter.feed(False), counter.state, counter.streak) == (True, Health.UNHEALTHY, -3)
