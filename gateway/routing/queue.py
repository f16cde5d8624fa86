"""Where the calls of one pool wait: interactive before batch, teams in turns, first come first served within a team.

Teams share by what they were given: each place that a team's call gets costs the team its size, and the team that has
had the least goes next. A team that comes new, or back, begins at the level of the others.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gateway.routing.requirement import Need, Priority

if TYPE_CHECKING:
    from gateway.routing.lease import CallLease, WorkerLease
    from gateway.routing.pool import Pool


class Ticket:
    """A place in the queue. Its holder asks (`admit`) at once and after each wake, and leaves at the end."""

    __slots__ = ("_pool", "is_evicted", "is_woken", "need", "until", "wake")

    def __init__(self, pool: Pool, need: Need, wake: Callable[[], None], until: float) -> None:
        self._pool = pool
        self.need = need
        self.wake = wake
        self.until = until  # it has waited too long then
        self.is_woken = self.is_evicted = False

    def admit(self, now: float, *, is_last: bool = False) -> tuple[CallLease, WorkerLease] | None:
        """The leases if it is this ticket's turn, which ends it; else None. Raises Fault, which ends it too.

        `is_last`: the wait is over, any worker will do now.
        """
        return self._pool._admit_ticket(self, now, is_last)

    def leave(self) -> None:
        """Give the place in the queue up, if it is still held."""
        self._pool._leave(self)


class FairQueue:
    """Tickets in the order in which they should go."""

    __slots__ = ("_had", "_level", "_size", "_teams")

    def __init__(self) -> None:
        # by priority and team, each first come first served and left from anywhere in constant time
        self._teams: tuple[dict[int, OrderedDict[Ticket, None]], ...] = tuple({} for _ in Priority)
        self._had: dict[int, float] = {}  # what a waiting team was given, on a scale that only grows
        self._level = 0.0  # what the team that went last had before
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._teams[ticket.need.priority].get(ticket.need.team, ())

    def __iter__(self) -> Iterator[Ticket]:
        """The tickets in the order in which they would go if all could."""
        for teams in self._teams:
            if len(teams) == 1:
                for tickets in teams.values():
                    yield from tickets
            elif teams:
                yield from self._in_turns(teams)

    def add(self, ticket: Ticket) -> None:
        """The last place of its team."""
        need = ticket.need
        self._teams[need.priority].setdefault(need.team, OrderedDict())[ticket] = None
        self._had[need.team] = max(self._had.get(need.team, 0.0), self._level)
        self._size += 1

    def remove(self, ticket: Ticket, *, is_served: bool) -> None:
        """Take a ticket out, which must be in; `is_served`: it got its places, which its team pays for."""
        need = ticket.need
        teams = self._teams[need.priority]
        tickets = teams[need.team]
        del tickets[ticket]
        self._size -= 1
        if is_served:
            self._level = max(self._level, self._had[need.team])
            self._had[need.team] += need.size
        if not tickets:
            del teams[need.team]
            if not self._size:  # the busy time is over, and nobody remembers for ever who was there
                self._had.clear()
                self._level = 0.0

    def last_of(self, priority: Priority) -> Ticket | None:
        """The ticket of that priority that would wait longest."""
        last = None
        for last in self._in_turns(self._teams[priority]):  # noqa: B007
            pass
        return last

    def _in_turns(self, teams: dict[int, OrderedDict[Ticket, None]]) -> Iterator[Ticket]:
        heap = [(self._had[team], order, iter(tickets)) for order, (team, tickets) in enumerate(teams.items())]
        heapq.heapify(heap)
        while heap:
            had, order, tickets = heap[0]
            ticket = next(tickets, None)
            if ticket is None:
                heapq.heappop(heap)
                continue
            heapq.heapreplace(heap, (had + ticket.need.size, order, tickets))
            yield ticket
