"""What a process holds and knows of one limit: leased permits, what it must tell Redis, the calls that wait.

Pure but for the futures of those calls: runtime/limits does the asking, and explains the rules.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from gateway.pipeline.ports import Limit, Verdict
from gateway.routing.limiter import RollingWindow

WINDOW_S: Final = 62
LEASE_S: Final = 1.0
KEEP_S: Final = 0.75  # a lease older than this goes back: with the sweep that is within a second
REFUSED_S: Final = 0.1
LEASED_FROM_PER_MIN: Final = 60
GIVE_BACK_S: Final = 3  # the longest time between taking a permit and giving it back


@dataclass(slots=True)
class Lease:
    """Permits that Redis counts in `second`, to be spent before `expires_s`."""

    second: int
    left: int
    expires_s: float


@dataclass(slots=True, eq=False)
class Scope:
    """What this process holds and knows of one limit. Times are of this process's clock unless named seconds."""

    limit: Limit
    leases: deque[Lease] = field(default_factory=deque)  # oldest first
    held: int = 0  # permits in them
    waiting: list[asyncio.Future[Verdict]] = field(default_factory=list)
    seconds: deque[int] = field(default_factory=deque)  # of Redis, in which permits were granted lately
    returns: Counter[int] = field(default_factory=Counter)  # second: permits to give back
    free: int = 0  # permits left, as last heard
    reset_s: float = 0.0
    retry_s: float = 0.0
    refused_until_s: float = 0.0
    spent: int = 0  # permits spent since they were last entered into the window
    entered: int = 0  # and those entered since the last sweep
    rate: float = 0.0  # calls a second
    target: int = 0  # permits to hold
    low: int = 0  # holding fewer, ask
    is_wanting: bool = False  # a call asked since the last round trip: what goes back in a lull is not leased again
    window: RollingWindow = field(default_factory=RollingWindow)  # all that this process spent
    untold: Counter[int] = field(default_factory=Counter)  # second of this clock: spent without Redis, which must know

    def enter(self, now: float) -> None:
        """Bring the window up to date."""
        if self.spent:
            self.window.add(self.spent, now)
            self.entered += self.spent
            self.spent = 0

    def take_alone(self, processes: int, now: float) -> Verdict:
        """One permit of this process's share."""
        self.enter(now)
        share = max(1, self.limit.per_min // processes)
        used = self.window.used(now)
        if used >= share:
            retry_s = self.window.free_in(used - share + 1, now)
            return Verdict(False, self.limit, 0, self.window.free_in(used, now), retry_s)
        self.window.add(1, now)
        self.untold[int(now)] += 1
        return Verdict(True, self.limit, share - used - 1, self.window.free_in(used + 1, now))

    def retire(self) -> None:
        """Give the oldest lease back."""
        lease = self.leases.popleft()
        if lease.left:
            self.held -= lease.left
            self.returns[lease.second] += lease.left

    def draw_up(self, now: float) -> Ask | None:
        """What to ask for, and what Redis must be told: permits unspent, and by age permits spent without it."""
        waiting, self.waiting = [future for future in self.waiting if not future.done()], []
        untold, self.untold = self.untold, Counter()
        told = [value for second, count in self.returns.items() for value in (second, -count)]
        self.returns.clear()
        for second, count in untold.items():
            if count and second > now - WINDOW_S:
                told += (second - int(now), count)
        wished = max(0, self.target - self.held) if self.is_wanting else 0
        self.is_wanting = False
        if not (waiting or wished or told):
            return None
        return Ask(self, waiting, untold, [self.limit.per_min, len(waiting), wished, len(told) // 2, *told])

    def hear(self, waiting: list[asyncio.Future[Verdict]], grant: Grant, now: float) -> None:
        """Share out what was granted: to the calls that wait, the rest into a lease."""
        left = grant.permits
        self.free, self.reset_s, self.retry_s = grant.free, grant.reset_s, grant.retry_s
        if left and (not self.seconds or self.seconds[-1] != grant.second):
            self.seconds.append(grant.second)
            while self.seconds[0] < grant.second - GIVE_BACK_S:
                self.seconds.popleft()
        for future in waiting:
            if future.done():  # its call is gone
                continue
            if left:
                left -= 1
                self.spent += 1
                future.set_result(Verdict(True, self.limit, self.free + left + self.held, self.reset_s - now))
            else:
                self.refused_until_s = min(now + REFUSED_S, self.retry_s)
                future.set_result(self.refusal(now))
        if left:
            self.leases.append(Lease(grant.second, left, grant.expires_s))
            self.held += left

    def refusal(self, now: float) -> Verdict:
        return Verdict(False, self.limit, 0, self.reset_s - now, max(0.0, self.retry_s - now))

    def sweep(self, elapsed_s: float, now: float) -> None:
        """Follow the demand, and give back what was kept for too long."""
        self.enter(now)
        self.rate += (self.entered / elapsed_s - self.rate) / 4
        self.entered = 0
        most = self.limit.per_min // 20 if self.limit.per_min >= LEASED_FROM_PER_MIN else 0
        self.target = min(int(self.rate / 2), most)
        self.low = (self.target + 1) // 2
        while self.leases and self.leases[0].expires_s - now < LEASE_S - KEEP_S:
            self.retire()

    @property
    def is_quiet(self) -> bool:
        return not (self.leases or self.returns or self.untold or self.spent) and self.rate < 0.1


@dataclass(slots=True)
class Ask:
    """A scope's part of one round trip; `values` are its part of the script's."""

    scope: Scope
    waiting: list[asyncio.Future[Verdict]]
    untold: Counter[int]
    values: list[int]
    is_heard: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """What Redis said of one scope. `second` is Redis's, the times are of this process's clock."""

    second: int
    permits: int
    free: int
    expires_s: float
    retry_s: float
    reset_s: float
