"""Who goes next: interactive before batch, teams in turns, first come first served within a team."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.options import QueueOptions
from gateway.routing.pool import Pool
from gateway.routing.queue import FairQueue, Ticket
from gateway.routing.requirement import Need, Priority
from tests.routing.pools import NEED, pool_of, worker

POOL = pool_of(worker("a", max_in_flight=1), queue=QueueOptions(size=4))


def ticket(team: int = 1, *, batch: bool = False, size: int = 1) -> Ticket:
    priority = Priority.BATCH if batch else Priority.INTERACTIVE
    return Ticket(POOL, Need(NEED.requirement, team=team, priority=priority, size=size), lambda: None, 0)


def queue(*tickets: Ticket) -> FairQueue:
    made = FairQueue()
    for each in tickets:
        made.add(each)
    return made


def serve(made: FairQueue) -> Ticket:
    first = next(iter(made))
    made.remove(first, is_served=True)
    return first


def test_one_team_is_first_come_first_served():
    tickets = [ticket() for _ in range(3)]
    assert list(queue(*tickets)) == tickets


def test_teams_take_turns_whoever_has_more():
    many, few = [ticket(1) for _ in range(4)], [ticket(2) for _ in range(2)]
    made = queue(*many, *few)
    expected = [many[0], few[0], many[1], few[1], many[2], many[3]]
    assert list(made) == expected
    assert [serve(made) for _ in range(6)] == expected


def test_interactive_goes_before_batch():
    batch, interactive = ticket(1, batch=True), ticket(2)
    assert list(queue(batch, interactive)) == [interactive, batch]


def test_large_call_costs_its_team_more():
    large, others = [ticket(1, size=3), ticket(1)], [ticket(2) for _ in range(4)]
    made = queue(*large, *others)
    assert [serve(made) for _ in range(6)] == [large[0], *others[:3], large[1], others[3]]


def test_team_that_comes_later_begins_at_the_level_of_the_others():
    early = [ticket(1) for _ in range(10)]
    made = queue(*early)
    for _ in range(5):
        serve(made)
    late = [ticket(2) for _ in range(3)]
    for each in late:
        made.add(each)
    order = list(made)
    assert order.index(late[2]) >= 4


def test_removed_ticket_is_gone_and_costs_its_team_nothing():
    first, second = ticket(1), ticket(1)
    made = queue(first, second)
    made.remove(first, is_served=False)
    assert (list(made), len(made), first in made, second in made) == ([second], 1, False, True)


def test_last_of_a_priority_is_the_one_that_would_wait_longest():
    batch = [ticket(1, batch=True), ticket(2, batch=True), ticket(1, batch=True)]
    made = queue(*batch, ticket(3))
    assert made.last_of(Priority.BATCH) is batch[2]
    assert queue(ticket()).last_of(Priority.BATCH) is None


CALLS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=30)


@given(CALLS, st.integers(0, 30))
def test_queue_of_one_priority_serves_in_the_order_that_it_lists(calls: list[tuple[int, int]], served: int):
    made = queue(*(ticket(team, size=size) for team, size in calls))
    before = list(made)
    gone = [serve(made) for _ in range(min(served, len(calls)))]
    assert [*gone, *made] == before


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 3)), max_size=30), st.integers(0, 30))
def test_queue_serves_everyone_once_and_each_team_in_order(calls: list[tuple[int, bool, int]], served: int):
    tickets = [ticket(team, batch=batch, size=size) for team, batch, size in calls]
    made = queue(*tickets)
    gone = [serve(made) for _ in range(min(served, len(tickets)))]
    assert sorted(map(id, [*gone, *made])) == sorted(map(id, tickets))
    for team in range(3):
        for priority in Priority:
            mine = [each for each in tickets if (each.need.team, each.need.priority) == (team, priority)]
            assert [each for each in [*gone, *made] if each in mine] == mine


def full_pool() -> Pool:
    pool = pool_of(worker("a", max_in_flight=1), queue=QueueOptions(size=2))
    assert pool.admit(NEED, 0) is not None
    return pool


def test_interactive_call_takes_the_place_of_the_last_batch_call_in_a_full_queue():
    pool, woken = full_pool(), []
    batch = Need(NEED.requirement, priority=Priority.BATCH)
    first = pool.join(batch, lambda: woken.append("first"), 0)
    last = pool.join(batch, lambda: woken.append("last"), 0)
    pool.join(NEED, lambda: None, 0)
    assert (woken, pool.waiting) == (["last"], 2)
    with pytest.raises(Fault) as told:
        last.admit(0)
    assert told.value.kind is FaultKind.OVERLOADED
    assert first.admit(0) is None


def test_batch_call_takes_nobodys_place():
    pool = full_pool()
    batch = Need(NEED.requirement, priority=Priority.BATCH)
    for need in (batch, NEED):
        pool.join(need, lambda: None, 0)
    with pytest.raises(Fault) as told:
        pool.join(batch, lambda: None, 0)
    assert told.value.kind is FaultKind.OVERLOADED


def test_batch_call_may_wait_longer():
    pool = pool_of(worker("a", max_in_flight=1), queue=QueueOptions(size=2, timeout_s=1, batch_timeout_s=30))
    pool.admit(NEED, 0)
    batch = Need(NEED.requirement, priority=Priority.BATCH)
    assert [pool.join(need, lambda: None, 5).until for need in (NEED, batch)] == [6, 35]


def test_queue_size_is_twice_the_places_unless_told():
    sizes = [
        pool_of(worker("a", max_in_flight=3), worker("b", max_in_flight=2)).queue_size,
        pool_of(worker("a", max_in_flight=3), worker("b"), max_in_flight=7).queue_size,
        pool_of(worker("a", max_in_flight=9), max_in_flight=4).queue_size,
        pool_of(worker("a"), worker("b", max_in_flight=1)).queue_size,
        pool_of(worker("a", max_in_flight=1), queue=QueueOptions(size=0)).queue_size,
    ]
    assert sizes == [10, 14, 8, 0, 0]
