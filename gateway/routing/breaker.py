"""The circuit breaker of one worker: when calls to it are kept away because calls to it fail.

*Closed* means that traffic flows. Time is an argument (monotonic seconds); time alone turns open into half-open.

    state       on                                                      goes to
    CLOSED      `failure_threshold` failures in a row                   OPEN
    CLOSED      successes below `success_ratio` of the answers of       OPEN
                10 s, of which there are at least `ratio_minimum`
    OPEN        the deadline passes, or a good probe (`invite`)         HALF_OPEN
    OPEN        a failure (of a call that began before)                 OPEN
    HALF_OPEN   `success_threshold` successes of trials, one at a time  CLOSED, slow start
    HALF_OPEN   any failure                                             OPEN

OPEN lasts `timeout_s`, twice as long each time in a row up to `longest_timeout_s`, give or take a fifth so that workers
that broke together are not tried together. 30 s closed take one doubling back. A deadline is never shortened but by
`invite`.

Rules
- Half-open lets one call through at a time, the trial. It is a lease: a trial of which nothing is heard for 30 s makes
  room for another one, so that a lost call cannot wedge the breaker.
- Only a trial's success counts while not closed, also that of one whose lease ran out, or calls longer than the lease
  could never close it. An older call that still ends well says nothing about now.
- Neutral (client gone, 429, our own credential refused) gives a trial back and counts for nothing.
- A probe never closes a breaker; it may bring the next trial forward.
- A worker that failed and was not asked since, because a policy turned away before the breaker did, is due a trial too,
  after as long as an opening would last (`is_trial_due`).

Whether anybody obeys is the pool's business: calls that begin anyway (the sole worker of a pool) are counted too.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

from gateway.routing.options import BreakerOptions
from gateway.routing.window import Window

_TRIAL_S = 30.0  # longer than most first bytes take; a lost trial costs that much
_CALM_S = 30.0  # closed for so long, the next opening is one doubling shorter
_JITTER = 0.2
_DOUBLINGS = 20  # more would pass any longest timeout


class BreakerState(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Counts the results of calls to one worker. `options` may be replaced and act from the next result on.

    `random` gives numbers in [0, 1) for the jitter.
    """

    __slots__ = (
        "_asked_at",
        "_closed_at",
        "_last_trial",
        "_oldest_trial",
        "_random",
        "_successes",
        "_trial",
        "_trial_until",
        "answers",
        "doublings",
        "failures",
        "opened_until",
        "options",
        "slow_since",
    )

    def __init__(self, options: BreakerOptions, random: Callable[[], float] = lambda: 0.5) -> None:
        self.options = options
        self.failures = 0  # in a row
        self.opened_until: float | None = None  # None: closed
        self.doublings = 0
        self.slow_since: float | None = None  # closed again then, and not yet taken for sound
        self.answers = Window()
        self._random = random
        self._closed_at = self._asked_at = 0.0
        self._successes = 0  # of trials since it opened
        self._trial = 0  # number of the trial that is out, 0 none
        self._trial_until = 0.0
        self._last_trial = 0
        self._oldest_trial = 1  # since it opened last

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

    def is_trial_due(self, now: float) -> bool:
        """Whether the next call should go here, to find out if the worker has recovered."""
        if self.opened_until is not None:
            return self.permits(now)
        return bool(self.failures) and now >= self._asked_at + self._length_s(self.failures - 1)

    def wait_s(self, now: float) -> float:
        """Time until the next trial may begin; 0 also while one is out, since it may end at any moment."""
        return 0.0 if self.opened_until is None else max(0.0, self.opened_until - now)

    def share(self, now: float) -> float:
        """Which part of its fair share of calls it should get: grows from a tenth to all of it in slow start."""
        if self.slow_since is None:
            return 1.0
        passed_s = now - self.slow_since
        if passed_s >= self.options.slow_start_s:
            self.slow_since = None
            return 1.0
        return max(0.1, passed_s / self.options.slow_start_s)

    def begin(self, now: float) -> int:
        """A call begins. Returns the number of the trial that it is, which its result names; 0: an ordinary call."""
        self._asked_at = now
        if self.opened_until is None or not self.permits(now):
            return 0
        self._last_trial += 1
        self._trial, self._trial_until = self._last_trial, now + _TRIAL_S
        return self._trial

    def succeeded(self, now: float, trial: int = 0) -> None:
        """A call ended well."""
        self.answers.add(now, is_good=True)
        if self.opened_until is None:
            self.failures = 0
        elif trial >= self._oldest_trial:
            self.neutral(trial)
            self._successes += 1
            if self._successes >= self.options.success_threshold:
                self._close(now)

    def failed(self, now: float) -> None:
        """A call failed, a trial or not."""
        self.failures += 1
        self._asked_at = now
        self.answers.add(now, is_good=False)
        if self.opened_until is not None:
            if now >= self.opened_until:  # while half-open: the worker has not recovered
                self.doublings = min(self.doublings + 1, _DOUBLINGS)
            self._open(now)
        elif self.failures >= self.options.failure_threshold or self._is_below_ratio(now):
            self.doublings = max(0, self.doublings - int((now - self._closed_at) // _CALM_S))
            self._open(now)
        self._trial = self._successes = 0
        self._oldest_trial = self._last_trial + 1

    def neutral(self, trial: int) -> None:
        """A call ended without saying anything about the worker."""
        if trial == self._trial:
            self._trial = 0

    def invite(self, now: float) -> None:
        """The worker seems to be back: the next call may be a trial at once."""
        if self.opened_until is not None:
            self.opened_until = min(self.opened_until, now)
        self._asked_at = -math.inf

    def _open(self, now: float) -> None:
        until = now + self._length_s(self.doublings) * (1 + _JITTER * (2 * self._random() - 1))
        self.opened_until = until if self.opened_until is None else max(self.opened_until, until)
        self.slow_since = None

    def _length_s(self, doublings: int) -> float:
        length_s: float = self.options.timeout_s * 2 ** min(doublings, _DOUBLINGS)
        return min(length_s, self.options.longest_timeout_s)

    def _close(self, now: float) -> None:
        self.opened_until, self.failures = None, 0
        self.doublings = min(self.doublings + 1, _DOUBLINGS)  # until it was calm: opening again is opening in a row
        self._closed_at = now
        self.answers.clear()
        self.slow_since = now if self.options.slow_start_s else None

    def _is_below_ratio(self, now: float) -> bool:
        good, bad = self.answers.totals(now)
        return good + bad >= self.options.ratio_minimum and good < self.options.success_ratio * (good + bad)
