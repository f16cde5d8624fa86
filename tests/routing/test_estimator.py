"""The learnt line, and how far off it things are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.estimator import Estimate, Shape

TTFT = Shape(0.020, 1 / 20_000, x_unit=500, y_unit_s=0.050, slack_s=0.050, weight_above=0.3)
TPOT = Shape(0.012, 0.0002, x_unit=10, y_unit_s=0.020, slack_s=0.010, weight_above=0.5, slope_limit=1.0)


def taught(shape: Shape, intercept_s: float, slope_s: float, samples: int = 600) -> Estimate:
    """An estimate that has seen samples of a line, give or take a tenth."""
    estimate, chance = Estimate(shape, 10.0), random.Random(1)
    for at in range(samples):
        x = chance.uniform(0, 4 * shape.x_unit)
        estimate.learn(x, (intercept_s + slope_s * x) * chance.uniform(0.9, 1.1), at * 0.1)
    return estimate


def test_estimate_without_samples_is_its_shape():
    estimate = Estimate(TTFT, 10.0)
    assert (estimate.line(0), estimate.line(20_000), estimate.off(5.0)) == (0.020, 1.020, 0.0)


def test_estimate_learns_line():
    estimate = taught(TTFT, 0.045, 1 / 1760)
    assert estimate.intercept_s == pytest.approx(0.045, rel=0.15)
    assert estimate.slope_s == pytest.approx(1 / 1760, rel=0.05)


def test_slope_stays_below_its_limit():
    estimate = taught(TPOT, 0.001, 0.004)
    assert estimate.slope_s <= estimate.intercept_s / TPOT.x_unit * 1.0000001


def test_sample_above_line_is_clipped():
    moderate, wild = Estimate(TTFT, 10.0), Estimate(TTFT, 10.0)
    moderate.learn(0, 2 * 0.020 + 0.050, 0.0)
    wild.learn(0, 1000.0, 0.0)
    assert wild.line(0) == moderate.line(0)


def test_sample_below_line_weighs_more_than_one_above():
    above, below = Estimate(TTFT, 10.0), Estimate(TTFT, 10.0)
    above.learn(0, 0.030, 0.0)
    below.learn(0, 0.010, 0.0)
    assert above.line(0) - 0.020 < 0.020 - below.line(0)


def test_off_line_is_a_fifth_of_each_error_and_fades():
    estimate = Estimate(TTFT, 10.0)
    estimate.learn(0, 1.020, 100.0)
    assert estimate.off(100.0) == pytest.approx(0.2)
    assert estimate.off(110.0) == pytest.approx(0.2 / 2.718281828)
    assert estimate.off(1000.0) == pytest.approx(0.0)


def test_constant_input_does_not_wind_up():
    estimate = taught(TTFT, 0.020, 1 / 17_000)
    for at in range(20_000):
        estimate.learn(100, 0.020 + 100 / 17_000, 60 + at * 0.1)
    estimate.learn(150, 5.0, 2100.0)
    assert estimate.slope_s < 1.5 / 17_000


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), max_size=60), st.sampled_from([TTFT, TPOT]))
def test_line_of_any_samples_is_finite_and_not_negative(samples: list[tuple[float, float]], shape: Shape):
    estimate = Estimate(shape, 10.0)
    for at, (x, y_s) in enumerate(samples):
        estimate.learn(x, y_s, float(at))
    assert 0 <= estimate.intercept_s < 1e6
    assert 0 <= estimate.slope_s < 1e6


def test_new_estimate_starts_at_median_of_others():
    others = [taught(TTFT, 0.1, 0.001), taught(TTFT, 0.02, 0.0001), taught(TTFT, 0.05, 0.0005)]
    estimate = Estimate(TTFT, 10.0)
    estimate.start_like(others)
    assert (estimate.intercept_s, estimate.slope_s) == (others[2].intercept_s, others[2].slope_s)
    estimate.start_like([])
    assert estimate.intercept_s == others[2].intercept_s
