from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing.breaker import Breaker, BreakerState
from gateway.routing.options import BreakerOptions

OPTIONS = BreakerOptions(failure_threshold=3, success_ratio=0.0, success_threshold=2, timeout_s=10.0)


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
    assert (breaker.state(30.9), breaker.state(31)) == (BreakerState.OPEN, BreakerState.HALF_OPEN)


def test_breaker_trial_fails_forgets_earlier_trial_successes():
    breaker = opened()
    breaker.succeeded(10, breaker.begin(10))
    breaker.begin(10)
    breaker.failed(10)
    breaker.succeeded(30, breaker.begin(30))
    assert breaker.state(30) is BreakerState.HALF_OPEN


def test_breaker_trial_neutral_makes_room_for_another():
    breaker = opened()
    breaker.neutral(breaker.begin(10))
    assert breaker.permits(10)


def test_breaker_trial_lost_makes_room_after_its_lease():
    breaker = opened()
    breaker.begin(10)
    assert (breaker.permits(39.9), breaker.permits(40)) == (False, True)


def test_breaker_trial_longer_than_its_lease_closes_all_the_same():
    breaker = opened(BreakerOptions(failure_threshold=1, timeout_s=10.0))
    late = breaker.begin(10)
    breaker.begin(40)
    breaker.succeeded(41, late)
    assert breaker.state(41) is BreakerState.CLOSED


def test_breaker_trial_from_before_it_opened_again_counts_for_nothing():
    breaker = opened(BreakerOptions(failure_threshold=1, timeout_s=10.0))
    early = breaker.begin(10)
    breaker.failed(11)
    breaker.begin(31)
    breaker.succeeded(32, early)
    assert (breaker.state(32), breaker.permits(32)) == (BreakerState.HALF_OPEN, False)


def test_breaker_late_trial_that_ends_well_keeps_the_room_of_the_one_that_is_out():
    breaker = opened()
    late = breaker.begin(10)
    breaker.begin(40)
    breaker.succeeded(41, late)
    assert (breaker.state(41), breaker.permits(41)) == (BreakerState.HALF_OPEN, False)


@pytest.mark.parametrize("now", [5.0, 10.0])
def test_breaker_older_call_succeeds_while_not_closed_counts_for_nothing(now: float):
    breaker = opened(BreakerOptions(failure_threshold=1, timeout_s=10.0))
    breaker.succeeded(now)
    assert breaker.opened_until == 10


def test_breaker_wait_is_time_until_trial():
    breaker = opened()
    assert (Breaker(OPTIONS).wait_s(3), breaker.wait_s(3), breaker.wait_s(12)) == (0, 7, 0)


def test_breaker_opens_twice_as_long_each_time_in_a_row_up_to_its_longest():
    breaker = Breaker(BreakerOptions(failure_threshold=1, timeout_s=1.0, longest_timeout_s=5.0))
    now, lengths = 0.0, []
    for _ in range(5):
        breaker.failed(now)
        assert breaker.opened_until is not None
        lengths.append(breaker.opened_until - now)
        now = breaker.opened_until
        breaker.begin(now)
    assert lengths == [1, 2, 4, 5, 5]


def test_breaker_calm_time_takes_doublings_back():
    breaker = Breaker(BreakerOptions(failure_threshold=1, timeout_s=1.0))
    breaker.failed(0)
    breaker.succeeded(1, breaker.begin(1))
    breaker.failed(30)
    assert breaker.opened_until == 30 + 2
    breaker.succeeded(32, breaker.begin(32))
    breaker.failed(32 + 60)
    assert breaker.opened_until == 92 + 1


@pytest.mark.parametrize(("random", "length_s"), [(0.0, 8.0), (0.5, 10.0), (0.999, 12.0)])
def test_breaker_deadline_is_jittered_by_a_fifth(random: float, length_s: float):
    breaker = Breaker(BreakerOptions(failure_threshold=1, timeout_s=10.0), lambda: random)
    breaker.failed(0)
    assert breaker.opened_until == pytest.approx(length_s, abs=0.01)


def test_breaker_share_of_successes_below_ratio_opens_with_enough_answers():
    breaker = Breaker(BreakerOptions(failure_threshold=100, success_ratio=0.8, ratio_minimum=10))
    for _ in range(2):
        breaker.failed(0)
    for _ in range(7):
        breaker.succeeded(0)
    assert breaker.state(0) is BreakerState.CLOSED
    breaker.failed(0)
    assert breaker.state(0) is BreakerState.OPEN


def test_breaker_old_answers_do_not_count_in_the_share():
    breaker = Breaker(BreakerOptions(failure_threshold=100, ratio_minimum=10))
    for _ in range(9):
        breaker.failed(0)
    breaker.failed(10)
    assert breaker.state(10) is BreakerState.CLOSED


def test_breaker_invited_is_half_open_at_once_and_never_closed():
    breaker = opened(now=0)
    breaker.invite(1)
    assert (breaker.state(1), breaker.permits(1)) == (BreakerState.HALF_OPEN, True)
    closed = Breaker(OPTIONS)
    closed.invite(1)
    assert closed.state(1) is BreakerState.CLOSED


def test_breaker_closed_again_grows_its_share_over_slow_start():
    breaker = opened(BreakerOptions(failure_threshold=1, timeout_s=1.0, slow_start_s=10.0))
    assert breaker.share(0.5) == 1.0
    breaker.succeeded(1, breaker.begin(1))
    assert [breaker.share(now) for now in (1.0, 2.0, 6.0, 11.0)] == [0.1, 0.1, 0.5, 1.0]
    assert breaker.slow_since is None


class BreakerMachine(RuleBasedStateMachine):
    """Calls that begin when permitted and end in any order, on a virtual clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(OPTIONS)
        self.calls: list[int] = []  # trial numbers of running calls
        self.out: dict[int, float] = {}  # trials without a result, and when they began
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
        if trial:
            assert all(self.now >= since + 30.0 for since in self.out.values()), "two trials at once"
            self.out[trial] = self.now

    @rule()
    def call_begins_anyway(self) -> None:
        if not self.breaker.permits(self.now):
            self.calls.append(self.breaker.begin(self.now))
            assert self.calls[-1] == 0

    @rule()
    def probe_is_good(self) -> None:
        before = self.breaker.opened_until is None, self.breaker.answers.totals(self.now)
        self.breaker.invite(self.now)
        self.deadline = min(self.deadline, self.now)
        assert (self.breaker.opened_until is None, self.breaker.answers.totals(self.now)) == before

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["good", "bad", "neutral"]))
    def call_ends(self, data: st.DataObject, how: str) -> None:
        trial = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        before = self.breaker.state(self.now)
        self.out.pop(trial, None)
        if how == "good":
            self.breaker.succeeded(self.now, trial)
            if self.breaker.state(self.now) is not before:
                assert trial
                assert self.breaker.state(self.now) is BreakerState.CLOSED
        elif how == "bad":
            self.breaker.failed(self.now)
            if before is not BreakerState.CLOSED:
                assert self.breaker.state(self.now) is BreakerState.OPEN
            if self.breaker.opened_until is not None:
                assert self.breaker.opened_until <= self.now + 1.2 * OPTIONS.longest_timeout_s
                self.out.clear()
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
        assert self.breaker.permits(max(self.now, self.deadline) + 30.0)

    @invariant()
    def slow_start_only_while_closed(self) -> None:
        assert self.breaker.opened_until is None or self.breaker.slow_since is None
        assert 0.1 <= self.breaker.share(self.now) <= 1.0


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=50, deadline=None)
