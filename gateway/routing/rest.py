"""How long a worker is spared that said it cannot serve now, though nothing is broken: rate limit, quota, credit.

    reason        first     grows to                                    the worker's own word
    rate limit    5 s       twice as long each time in a row, 30 min    up to 1 h
    quota         15 min    -                                           up to 8 days
    credit        30 min    -                                           up to 8 days
    credential    1 min     twice as long each time in a row, 10 min    -

A later deadline is never shortened: a refusal without a hint does not undo one that named its time. A success ends the
row, not the rest. Resting workers go last and are never dropped: with nobody else left they are asked all the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RestReason(enum.Enum):
    RATE_LIMIT = "rate limit"
    QUOTA = "quota"
    CREDIT = "credit"
    CREDENTIAL = "credential"


@dataclass(frozen=True, slots=True)
class _Length:
    first_s: float
    longest_s: float
    hint_limit_s: float  # a worker's own word counts up to this


_DAYS_8 = 8 * 86_400.0
_LENGTHS = {
    RestReason.RATE_LIMIT: _Length(5.0, 1800.0, 3600.0),
    RestReason.QUOTA: _Length(900.0, 900.0, _DAYS_8),
    RestReason.CREDIT: _Length(1800.0, 1800.0, _DAYS_8),
    RestReason.CREDENTIAL: _Length(60.0, 600.0, 0.0),
}


@dataclass(slots=True)
class Rest:
    """One worker's rest. Times are monotonic seconds; `until` in the past: it does not rest."""

    until: float = 0.0
    since: float = 0.0
    reason: RestReason | None = None
    in_a_row: int = 0

    def is_on(self, now: float) -> bool:
        return now < self.until

    def begin(self, reason: RestReason, now: float, hint_s: float | None = None) -> None:
        """The worker refused, and perhaps said for how long."""
        length = _LENGTHS[reason]
        self.in_a_row += 1
        if hint_s is not None and length.hint_limit_s:
            wait_s = min(hint_s, length.hint_limit_s)
        else:
            wait_s = min(length.first_s * 2 ** min(self.in_a_row - 1, 20), length.longest_s)
        self.extend(reason, now, now + wait_s)

    def extend(self, reason: RestReason, now: float, until: float) -> None:
        """Rest at least until then; also what another process has heard."""
        if until > self.until:
            if not self.is_on(now):
                self.since = now
            self.until, self.reason = until, reason

    def succeeded(self) -> None:
        """The worker answered: the next refusal begins a new row."""
        self.in_a_row = 0

    def clear(self) -> None:
        """Forget it: the worker is another one now."""
        self.until, self.in_a_row, self.reason = 0.0, 0, None
