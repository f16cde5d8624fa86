"""What holds for every policy."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policies.registry import POLICIES, PolicyEntry
from gateway.routing.options import describe, read_options
from gateway.routing.policy import Policy
from gateway.routing.requirement import Need
from gateway.routing.worker import LoadReport, Worker
from tests.policies.candidates import NEED, Traffic, kept, need, worker, workers

every_policy = pytest.mark.parametrize("entry", POLICIES.values(), ids=POLICIES)
STARVING_BY_DESIGN = {"passthrough"}


def varied_needs() -> Iterator[Need]:
    """Calls with keys, lengths and beginnings of their own, always the same ones."""
    chance = random.Random(7)
    for at in itertools.count():
        yield need(f"{at} ".encode() * chance.randrange(1, 2000), input_tokens=at + 1, routing_key=f"key {at}")


def reported(at: int) -> LoadReport | None:
    return LoadReport(0.0, 1, at, at * 100, 1000.0, at / 10) if at % 2 else None


def learned(entry: PolicyEntry, live: list[Worker]) -> Policy:
    """A policy that has served some calls of these workers."""
    traffic = Traffic(kept(entry.make(None), live))
    traffic.calls(20, lambda at: live, varied_needs())
    return traffic.policy


def state_of(thing: object, seen: dict[int, int] | None = None) -> Any:
    """All that is in a policy and below it, to compare: live objects have slots. One met again is a number."""
    seen = {} if seen is None else seen
    if isinstance(thing, Mapping):
        return [(state_of(key, seen), state_of(value, seen)) for key, value in thing.items()]
    if isinstance(thing, (list, tuple, deque)):
        return [state_of(each, seen) for each in thing]
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if name != "__weakref__"]
    if not names:
        return thing
    if id(thing) in seen:
        return seen[id(thing)]
    seen[id(thing)] = len(seen)
    return {name: state_of(getattr(thing, name), seen) for name in names}


@every_policy
def test_entry_is_complete(entry: PolicyEntry):
    assert POLICIES[entry.name] is entry
    assert entry.summary
    assert all(info.help for info in describe(entry.options))
    assert read_options(entry.options, {info.name: info.default for info in describe(entry.options)}, "") == (
        entry.options(),
        [],
    )


@every_policy
def test_policy_chooses_sole_candidate(entry: PolicyEntry):
    live = workers(7, 0, 0)
    chosen, terms = kept(entry.make(None), live).choose(live[:1], NEED, 0.0)
    assert chosen is live[0]
    assert len(terms) in (0, 1)


@every_policy
@settings(deadline=None, max_examples=25)
@given(
    state=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9),
    prompt=st.binary(max_size=9),
    now=st.floats(20, 1e6),
)
def test_policy_chooses_candidate_and_changes_nothing(
    entry: PolicyEntry, state: list[tuple[int, int, int]], prompt: bytes, now: float
):
    live = [worker(str(at), load, turn, reported(told)) for at, (load, turn, told) in enumerate(state)]
    policy = learned(entry, live)
    before = state_of([policy, live])
    for _ in range(2):
        chosen, terms = policy.choose(live, need(prompt), now)
        assert chosen in live
        assert state_of([policy, live]) == before
        assert [len(its) for its in terms] in ([], [len(policy.term_names)] * len(live))


@every_policy
def test_policy_with_changing_subsets_chooses_among_them(entry: PolicyEntry):
    live, chance, calls = workers(0, 0, 0, 0, 0), random.Random(3), varied_needs()
    traffic = Traffic(kept(entry.make(None), live))
    for at in range(300):
        candidates = sorted(chance.sample(live, chance.randint(1, 5)), key=live.index)
        chosen, track = traffic.call(candidates, next(calls), float(at))
        assert chosen in candidates
        if track is not None:
            track.answered(at + 0.5)


@every_policy
def test_policy_keeps_up_with_workers_that_come_and_go(entry: PolicyEntry):
    everyone, calls = [worker(str(at)) for at in range(12)], varied_needs()
    traffic = Traffic(entry.make(None))
    for at in range(9):
        live = everyone[at : at + 4]
        traffic.policy.keep(live)
        for second in range(20):
            assert traffic.call(live, next(calls), 20.0 * at + second)[0] in live


@every_policy
def test_policy_over_many_calls_starves_nobody(entry: PolicyEntry):
    live = workers(0, 0, 0, 0)
    served = Traffic(kept(entry.make(None), live)).calls(400, lambda at: live, varied_needs())
    assert min(served[each.spec.name] for each in live) >= (0 if entry.name in STARVING_BY_DESIGN else 40)


class Untouchable(Worker):
    """A worker whose load, turn and report nobody may look at while it is no candidate."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        assert name not in ("in_flight", "load", "turn", "report", "breaker", "health", "rest", "quota"), name
        return super().__getattribute__(name)


@every_policy
def test_policy_reads_candidates_only(entry: PolicyEntry):
    live = workers(1, 0, 2, 0)
    policy = learned(entry, live)
    for each in (live[0], live[2]):
        each.__class__ = Untouchable
    for call in itertools.islice(varied_needs(), 50):
        assert policy.choose([live[1], live[3]], call, 20.0)[0] in (live[1], live[3])


@every_policy
def test_policy_serves_64_workers(entry: PolicyEntry):
    live = [worker(str(at), load=at % 5, turn=at) for at in range(64)]
    served = Traffic(kept(entry.make(None), live)).calls(500, lambda at: live, varied_needs())
    assert served.total() == 500
