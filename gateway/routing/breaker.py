"""The circuit breaker of one worker: when calls to it are kept away because calls to it fail.

*Closed* means that traffic flows. Time is an argument (monotonic seconds); time alone turns open into half-open.

    state       on                                                      goes to
    CLOSED      `failure_threshold` failures in a row                   OPEN for `timeout_s`
    OPEN        the deadline passes                                     HALF_OPEN
    OPEN        a failure (of a call that began before)                 OPEN, the deadline extended, never shortened
    HALF_OPEN   `success_threshold` successes of trials, one at a time  CLOSED
    HALF_OPEN   any failure                                             OPEN for `timeout_s`

Rules
- Half-open lets one call through at a time, the trial. It is a lease of `timeout_s`: a trial of which nothing is heard
  makes room for another one, so that a lost call cannot wedge the breaker.
- Only the trial's success counts while not closed: an older call that still ends well says nothing about now.
- Neutral (client gone, 429, our own credential refused) gives a trial back and counts for nothing.
- A probe never closes a breaker.

Whether anybody obeys is the pool's business: calls that begin anyway (the sole worker of a pool) are counted too.
"""

from __future__ import annotations

import enum

from gateway.routing.options import BreakerOptions


class BreakerState(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Counts the results of calls to one worker. `options` may be replaced and act from the next result on."""

    __slots__ = ("_last_trial", "_successes", "_trial", "_trial_until", "failures", "opened_until", "options")

    def __init__(self, options: BreakerOptions) -> None:
        self.options = options
        self.failures = 0  # in a row
        self.opened_until: float | None = None  # None: closed
        self._successes = 0  # of trials since it opened
        self._trial = 0  # number of the trial that is out, 0 none
        self._trial_until = 0.0
        self._last_trial = 0

    def state(self, now: float) -> BreakerState:
        """Where it stands."""
        if self.opened_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.opened_until else BreakerState.HALF_OPEN

    def permits(self, now: float) -> bool:
        """Whether a call may begin."""
        if self.opened_until is None:
            return True
        return now >= self.opened_until and (not self._trial or now >= self._trial_until)

    def wait_s(self, now: float) -> float:
        """Time until the next trial may begin; 0 also while one is out, since it may end at any moment."""
        return 0.0 if self.opened_until is None else max(0.0, self.opened_until - now)

    def begin(self, now: float) -> int:
        """A call begins. Returns the number of the trial that it is, which its result names; 0: an ordinary call."""
        if self.opened_until is None or not self.permits(now):
            return 0
        self._last_trial += 1
        self._trial, self._trial_until = self._last_trial, now + self.options.timeout_s
        return self._trial

    def succeeded(self, now: float, trial: int = 0) -> None:
        """A call ended well."""
        if self.opened_until is None:
            self.failures = 0
        elif trial and trial == self._trial:
            self._trial = 0
            self._successes += 1
            if self._successes >= self.options.success_threshold:
                self.opened_until, self.failures = None, 0

    def failed(self, now: float) -> None:
        """A call failed, a trial or not."""
        self.failures += 1
        until = now + self.options.timeout_s
        if self.opened_until is not None:
            self.opened_until = max(self.opened_until, until)
        elif self.failures >= self.options.failure_threshold:
            self.opened_until = until
        self._trial = self._successes = 0

    def neutral(self, trial: int) -> None:
        """A call ended without saying anything about the worker."""
        if trial == self._trial:
            self._trial = 0
