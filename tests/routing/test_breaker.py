from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing.breaker import Breaker, BreakerState
from gateway.routing.options import BreakerOptions

OPTIONS = BreakerOptions(failure_threshold=3, success_threshold=2, timeout_s=10.0)


def opened(options: BreakerOptions = OPTIONS, now: float = 0.0) -> Breaker:
    breaker = Breaker(options)
    for _ in range(options.failure_threshold):
        breaker.failed(now)
    return breaker


def test_breaker_one_failure_short_of_threshold_stays_closed():
    breaker = Breaker(OPTIONS)
    breaker.failed(0)
    breaker.failed(0)
    assert (breaker.state(0), breaker.permits(0), breaker.failures) == (BreakerState.CLOSED, True, 2)


def test_breaker_threshold_of_failures_in_a_row_opens_for_timeout():
    breaker = opened(now=5)
    assert (breaker.state(14.9), breaker.permits(14.9), breaker.opened_until) == (BreakerState.OPEN, False, 15)
    assert (breaker.state(15), breaker.permits(15)) == (BreakerState.HALF_OPEN, True)


def test_breaker_success_between_failures_starts_counting_anew():
    breaker = Breaker(OPTIONS)
    for result in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        result(0)
    assert breaker.state(0) is BreakerState.CLOSED


def test_breaker_failure_while_open_extends_deadline():
    breaker = opened(now=0)
    breaker.failed(4)
    assert breaker.opened_until == 14


def test_breaker_failure_with_shorter_timeout_never_shortens_deadline():
    breaker = opened(now=0)
    breaker.options = BreakerOptions(failure_threshold=3, timeout_s=1.0)
    breaker.failed(4)
    assert breaker.opened_until == 10


def test_breaker_half_open_lets_one_trial_through():
    breaker = opened()
    assert breaker.begin(10) > 0
    assert (breaker.permits(10), breaker.begin(10)) == (False, 0)


def test_breaker_trial_succeeds_needs_success_threshold_to_close():
    breaker = opened()
    breaker.succeeded(11, breaker.begin(10))
    assert breaker.state(11) is BreakerState.HALF_OPEN
    breaker.succeeded(12, breaker.begin(11))
    assert (breaker.state(12), breaker.failures, breaker.opened_until) == (BreakerState.CLOSED, 0, None)


def test_breaker_trial_fails_opens_again():
    breaker = opened()
    breaker.begin(10)
    breaker.failed(11)
    assert (breaker.state(20.9), breaker.state(21)) == (BreakerState.OPEN, BreakerState.HALF_OPEN)


def test_breaker_trial_fails_forgets_earlier_trial_successes():
    breaker = opened()
    breaker.succeeded(10, breaker.begin(10))
    breaker.begin(10)
    breaker.failed(10)
    breaker.succeeded(20, breaker.begin(20))
    assert breaker.state(20) is BreakerState.HALF_OPEN


def test_breaker_trial_neutral_makes_room_for_another():
    breaker = opened()
    breaker.neutral(breaker.begin(10))
    assert breaker.permits(10)


def test_breaker_trial_lost_makes_room_after_its_lease():
    breaker = opened()
    breaker.begin(10)
    assert (breaker.permits(19.9), breaker.permits(20)) == (False, True)


def test_breaker_replaced_trial_succeeds_late_counts_for_nothing():
    breaker = opened(BreakerOptions(failure_threshold=1, timeout_s=10.0))
    late = breaker.begin(10)
    breaker.begin(20)
    breaker.succeeded(21, late)
    assert breaker.state(21) is BreakerState.HALF_OPEN


@pytest.mark.parametrize("now", [5.0, 10.0])
def test_breaker_older_call_succeeds_while_not_closed_counts_for_nothing(now: float):
    breaker = opened(BreakerOptions(failure_threshold=1, timeout_s=10.0))
    breaker.succeeded(now)
    assert breaker.opened_until == 10


def test_breaker_wait_is_time_until_trial():
    breaker = opened()
    assert (Breaker(OPTIONS).wait_s(3), breaker.wait_s(3), breaker.wait_s(12)) == (0, 7, 0)


class BreakerMachine(RuleBasedStateMachine):
    """Calls that begin when permitted and end in any order, on a virtual clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(OPTIONS)
        self.calls: list[int] = []  # trial numbers of running calls
        self.deadline = 0.0

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 9.5, 10.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def call_begins(self) -> None:
        if not self.breaker.permits(self.now):
            assert self.breaker.begin(self.now) == 0
            return
        trial = self.breaker.begin(self.now)
        assert bool(trial) == (self.breaker.state(self.now) is BreakerState.HALF_OPEN)
        self.calls.append(trial)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["good", "bad", "neutral"]))
    def call_ends(self, data: st.DataObject, how: str) -> None:
        trial = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        before = self.breaker.state(self.now)
        if how == "good":
            self.breaker.succeeded(self.now, trial)
            if self.breaker.state(self.now) is not before:
                assert trial
                assert self.breaker.state(self.now) is BreakerState.CLOSED
        elif how == "bad":
            self.breaker.failed(self.now)
            if before is not BreakerState.CLOSED:
                assert self.breaker.state(self.now) is BreakerState.OPEN
        else:
            self.breaker.neutral(trial)
            assert self.breaker.state(self.now) is before

    @invariant()
    def deadline_is_never_shortened(self) -> None:
        if self.breaker.opened_until is None:
            self.deadline = 0.0
        else:
            assert self.breaker.opened_until >= self.deadline
            self.deadline = self.breaker.opened_until

    @invariant()
    def closed_means_below_threshold(self) -> None:
        if self.breaker.opened_until is None:
            assert self.breaker.failures < OPTIONS.failure_threshold

    @invariant()
    def never_wedged(self) -> None:
        assert self.breaker.permits(max(self.now, self.deadline) + OPTIONS.timeout_s)


TestBreakerMachine = BreakerMachine.TestCase
