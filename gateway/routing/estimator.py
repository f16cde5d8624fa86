"""A quantity that grows with load, learnt from samples: its line when nothing is wrong, and how far off it is now.

The line is found by recursive least squares that forget slowly. It is meant to be the *uncongested* one: a sample above
it is clipped and weighs less. How far the last samples were off it fades while nothing is heard, so that an estimate
returns to what was learnt and never to zero, which would reward a worker for being idle.

Two traps are closed. Under constant input the covariance would grow without bound and one odd sample would then turn
the line over: it is capped. Coefficients do not become negative, and the slope may be bound to the intercept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_FORGET = 0.998  # the weight of a sample halves in some 350 further ones
_COVARIANCE = 1.0  # at first and at most
_NEW = 0.2  # weight of a sample in how far off the line things are now


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a quantity before any sample. x and y are divided by `x_unit` and `y_unit_s`."""

    intercept_s: float
    slope_s: float
    x_unit: float
    y_unit_s: float
    slack_s: float  # a sample is clipped to twice the line and this
    weight_above: float  # of a sample above the line; one below it weighs 1
    slope_limit: float | None = None  # in units, times the intercept


class Estimate:
    """y in seconds as a function of x at a moment. `fade_s` is the time constant of what is off the line."""

    __slots__ = ("_covariance", "_fade_s", "_off_at", "_off_s", "_shape", "intercept_s", "slope_s")

    def __init__(self, shape: Shape, fade_s: float) -> None:
        self._shape = shape
        self._fade_s = fade_s
        self._covariance = (_COVARIANCE, 0.0, _COVARIANCE)
        self._off_s = self._off_at = 0.0
        self.intercept_s = shape.intercept_s
        self.slope_s = shape.slope_s

    def start_like(self, others: Sequence[Estimate]) -> None:
        """Take the median line of the others instead of what the shape says."""
        if others:
            self.intercept_s = median(other.intercept_s for other in others)
            self.slope_s = median(other.slope_s for other in others)

    def line(self, x: float) -> float:
        """y as it is when nothing is wrong."""
        return self.intercept_s + self.slope_s * x

    def off(self, now: float) -> float:
        """How far off the line y is now; negative: below it."""
        return self._off_s * math.exp((self._off_at - now) / self._fade_s) if self._off_s else 0.0

    def learn(self, x: float, y_s: float, now: float) -> None:
        """Take in one sample."""
        line_s = self.line(x)
        error_s = y_s - line_s
        self._off_s = (1 - _NEW) * self.off(now) + _NEW * error_s
        self._off_at = now
        shape = self._shape
        self._fit(x, min(y_s, 2 * line_s + shape.slack_s), 1.0 if error_s < 0 else shape.weight_above)

    def _fit(self, x: float, y_s: float, weight: float) -> None:
        """One step of recursive least squares for intercept and slope, in units."""
        shape = self._shape
        x /= shape.x_unit
        intercept, slope = self.intercept_s / shape.y_unit_s, self.slope_s * shape.x_unit / shape.y_unit_s
        p00, p01, p11 = self._covariance
        k0, k1 = p00 + p01 * x, p01 + p11 * x
        divisor = _FORGET / weight + k0 + k1 * x
        error = y_s / shape.y_unit_s - intercept - slope * x
        intercept = max(0.0, intercept + k0 / divisor * error)
        slope = max(0.0, slope + k1 / divisor * error)
        if shape.slope_limit is not None:
            slope = min(slope, shape.slope_limit * intercept)
        p00 = min(_COVARIANCE, max(0.0, p00 - k0 * k0 / divisor) / _FORGET)
        p11 = min(_COVARIANCE, max(0.0, p11 - k1 * k1 / divisor) / _FORGET)
        most = math.sqrt(p00 * p11)  # or what is left after the caps is no covariance, and gains have no bound
        self._covariance = (p00, min(most, max(-most, (p01 - k0 * k1 / divisor) / _FORGET)), p11)
        self.intercept_s = intercept * shape.y_unit_s
        self.slope_s = slope * shape.y_unit_s / shape.x_unit
