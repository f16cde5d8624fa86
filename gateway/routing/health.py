"""What probes say of a worker: three states, and the thresholds that lead from one to another.

    UNKNOWN     nobody asked yet, or not lately; traffic flows
    HEALTHY     enough good probes in a row
    UNHEALTHY   enough failed probes in a row; no traffic

A single opposite result ends a streak and changes no state.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Health(enum.Enum):
    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class HealthView:
    """The last word on a worker. `at_unix_s` is when it was said, 0 never; `latency_ms` is that of the probe."""

    state: Health = Health.UNKNOWN
    reason: str = ""
    at_unix_s: float = 0.0
    latency_ms: float | None = None


UNSEEN = HealthView()


@dataclass(slots=True)
class HealthCounter:
    """The probe results of one worker. `streak` counts good ones in a row, negative: failed ones in a row."""

    failure_threshold: int
    success_threshold: int
    state: Health = Health.UNKNOWN
    streak: int = 0

    def feed(self, is_good: bool) -> bool:
        """Take in one result; whether the state changed."""
        before = self.state
        if is_good:
            self.streak = max(self.streak, 0) + 1
            if self.streak >= self.success_threshold:
                self.state = Health.HEALTHY
        else:
            self.streak = min(self.streak, 0) - 1
            if -self.streak >= self.failure_threshold:
                self.state = Health.UNHEALTHY
        return self.state is not before
