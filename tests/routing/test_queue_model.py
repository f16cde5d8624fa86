"""The fair queue against a naive one that looks through everything at each question."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing.queue import FairQueue, Ticket
from gateway.routing.requirement import Need, Priority
from tests.routing.pools import WHOLE, pool_of

POOL = pool_of()


class Naive:
    """Who goes next is the first ticket of the team that had the least, of those that wait in the best priority."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.had: dict[int, float] = {}
        self.level = 0.0

    def add(self, ticket: Ticket) -> None:
        self.tickets.append(ticket)
        self.had[ticket.need.team] = max(self.had.get(ticket.need.team, 0.0), self.level)

    def remove(self, ticket: Ticket, *, is_served: bool) -> None:
        self.tickets.remove(ticket)
        if is_served:
            self.level = max(self.level, self.had[ticket.need.team])
            self.had[ticket.need.team] += ticket.need.size
        if not self.tickets:
            self.had, self.level = {}, 0.0

    def order(self) -> list[Ticket]:
        order: list[Ticket] = []
        for priority in Priority:
            left = [each for each in self.tickets if each.need.priority is priority]
            had = dict(self.had)
            teams = list(dict.fromkeys(each.need.team for each in left))
            while left:
                first = {team: next((t for t in left if t.need.team == team), None) for team in teams}
                team = min((team for team in teams if first[team]), key=had.__getitem__)
                ticket = first[team]
                assert ticket is not None
                order.append(ticket)
                left.remove(ticket)
                had[team] += ticket.need.size
        return order


def costs(had: dict[int, float], order: list[Ticket]) -> list[tuple[Priority, float]]:
    """What the team of each ticket had when it goes, if all go in this order, batch calls paying apart."""
    had_of = {priority: dict(had) for priority in Priority}
    found = []
    for ticket in order:
        need = ticket.need
        found.append((need.priority, had_of[need.priority][need.team]))
        had_of[need.priority][need.team] += need.size
    return found


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue, self.naive = FairQueue(), Naive()

    @rule(team=st.integers(0, 2), priority=st.sampled_from(Priority), size=st.sampled_from([1, 1, 2, 5]))
    def joins(self, team: int, priority: Priority, size: int) -> None:
        ticket = Ticket(POOL, Need(WHOLE, team=team, priority=priority, size=size), lambda: None, 0)
        assert ticket not in self.queue
        self.queue.add(ticket)
        self.naive.add(ticket)

    @precondition(lambda self: self.naive.tickets)
    @rule(data=st.data(), is_served=st.booleans(), is_first=st.booleans())
    def goes(self, data: st.DataObject, is_served: bool, is_first: bool) -> None:
        order = self.naive.order()
        ticket = order[0] if is_first else data.draw(st.sampled_from(order))
        for queue in (self.queue, self.naive):
            queue.remove(ticket, is_served=is_served)
        assert ticket not in self.queue

    @invariant()
    def holds_the_same_in_the_same_order_but_for_teams_that_are_level(self) -> None:
        order = self.naive.order()
        assert sorted(map(id, self.queue)) == sorted(map(id, order))
        assert len(self.queue) == len(order)
        assert all(each in self.queue for each in order)
        assert [costs(self.naive.had, order)] == [costs(self.naive.had, list(self.queue))]

    @invariant()
    def next_one_has_had_the_least(self) -> None:
        for priority in Priority:
            waiting = [each for each in self.queue if each.need.priority is priority]
            if waiting:
                had = self.naive.had
                assert had[waiting[0].need.team] == min(had[each.need.team] for each in waiting)
                last = self.queue.last_of(priority)
                assert last is waiting[-1]

    @invariant()
    def each_team_is_first_come_first_served(self) -> None:
        for team in range(3):
            for priority in Priority:
                key = (team, priority)
                mine = [each for each in self.naive.tickets if (each.need.team, each.need.priority) == key]
                assert [each for each in self.queue if (each.need.team, each.need.priority) == key] == mine

    @invariant()
    def remembers_only_who_was_there_in_this_busy_time(self) -> None:
        assert self.queue._had == self.naive.had


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


def test_two_busy_teams_get_the_same_however_many_calls_each_has():
    queue = FairQueue()
    needs = [Need(WHOLE, team=1)] * 300 + [Need(WHOLE, team=2, size=4)] * 100
    for need in needs:
        queue.add(Ticket(POOL, need, lambda: None, 0))
    given = {1: 0, 2: 0}
    for _ in range(150):
        first = next(iter(queue))
        queue.remove(first, is_served=True)
        given[first.need.team] += first.need.size
        assert abs(given[1] - given[2]) <= 4
