"""Many calls on a virtual clock through one pool while workers fail: what is lost, and what it costs the workers."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from gateway.protocol.faults import Fault
from gateway.routing.lease import CallLease, WorkerLease
from gateway.routing.policy import Policy
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need
from gateway.routing.retry import Signal
from gateway.routing.snapshot import WorkerId
from tests.routing.pools import NEED, LeastBusy, Recency, pool_of, worker

PER_S = 50
POLICIES = pytest.mark.parametrize("policy", [Recency, LeastBusy])


@dataclass
class Storm:
    """`answers` says how long a worker takes at that time, and whether it answers well."""

    pool: Pool
    answers: Callable[[str, float], tuple[float, bool]]
    ended: Counter[str] = field(default_factory=Counter)
    attempts: list[tuple[float, str]] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def run(self, calls: int, since: float = 0.0) -> Storm:
        for at in range(calls):
            self._at(since + at / PER_S, self._arrives)
        while self._events:
            now, _, event = heapq.heappop(self._events)
            event(now)
        return self

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def _arrives(self, now: float) -> None:
        try:
            got = self.pool.admit(NEED, now)
        except Fault as fault:
            self.ended[fault.kind.name] += 1
            return
        assert got is not None
        self._attempt(*got, NEED, set(), now)

    def _attempt(self, call: CallLease, lease: WorkerLease, need: Need, tried: set[WorkerId], now: float) -> None:
        spec = lease.worker.spec
        self.attempts.append((now, spec.name))
        takes_s, is_good = self.answers(spec.name, now)

        def ends(now: float) -> None:
            lease.finish(Signal.SUCCESS if is_good else Signal.FAILURE, now)
            tried.add(spec.id)
            following = None if is_good or len(tried) > 1 else self.pool.choose(need, tried, now)
            lease.release()
            if following is not None:
                self._attempt(call, following, need, tried, now)
                return
            call.release()
            self.ended["good" if is_good else "bad"] += 1

        self._at(now + takes_s, ends)


@POLICIES
@pytest.mark.parametrize("names", ["ab", "abcde"])
@pytest.mark.parametrize("good_s", [0.05, 2.0])
def test_black_hole_loses_no_call_with_one_retry(policy: type[Policy], names: str, good_s: float):
    def answers(name: str, now: float) -> tuple[float, bool]:
        return (0.001, False) if name == "a" and 10 <= now < 25 else (good_s, True)

    pool = pool_of(*map(worker, names), by=policy())
    storm = Storm(pool, answers).run(40 * PER_S)
    assert storm.ended == {"good": 40 * PER_S}
    assert len(storm.attempts) <= 40 * PER_S * 1.05
    assert storm.attempts[-1][0] < 41
    assert {name for now, name in storm.attempts if now > 35} == set(names)


@POLICIES
@pytest.mark.parametrize("takes_s", [0.001, 0.3])
def test_total_outage_is_hardly_amplified_and_over_soon_after_its_end(policy: type[Policy], takes_s: float):
    def answers(name: str, now: float) -> tuple[float, bool]:
        return (takes_s, not 10 <= now < 20)

    storm = Storm(pool_of(*map(worker, "abc"), by=policy()), answers).run(30 * PER_S)
    during = [now for now, _ in storm.attempts if 10 <= now < 20]
    assert len(during) <= 1.25 * 10 * PER_S
    assert storm.ended == {"good": 20 * PER_S, "bad": 10 * PER_S}


def test_total_outage_from_the_start_is_hardly_amplified():
    storm = Storm(pool_of(*map(worker, "abc")), lambda name, now: (0.001, False)).run(500)
    assert storm.ended == {"bad": 500}
    assert len(storm.attempts) <= 1.25 * 500


def test_sole_worker_that_fails_gets_a_trickle_and_all_calls_soon_after():
    luck = [0.0]

    def random() -> float:
        luck[0] = (luck[0] + 0.618034) % 1
        return luck[0]

    pool = pool_of(worker("a"), random=random)
    storm = Storm(pool, lambda name, now: (0.01, not 10 <= now < 40)).run(60 * PER_S)
    per_5_s = Counter(int(now / 5) for now, _ in storm.attempts)
    assert all(1 <= per_5_s[part] <= 20 for part in range(4, 8))
    assert [per_5_s[part] for part in range(10, 12)] == [5 * PER_S] * 2
    assert storm.ended["bad"] + storm.ended["NO_WORKER"] <= 33 * PER_S


@POLICIES
def test_returned_worker_takes_a_growing_share_and_never_twice_its_fair_one(policy: type[Policy]):
    def answers(name: str, now: float) -> tuple[float, bool]:
        return (0.2, not (name == "a" and now < 5))

    pool = pool_of(*map(worker, "abcd"), by=policy())
    storm = Storm(pool, answers).run(40 * PER_S)
    breaker_closed_at = next(now for now, name in storm.attempts if name == "a" and now >= 5)
    shares = [
        sum(name == "a" for now, name in storm.attempts if 0 <= now - breaker_closed_at - 2 * part < 2)
        / (2 * PER_S / 4)
        for part in range(8)
    ]
    assert shares[0] <= 0.3
    assert shares[:5] == sorted(shares[:5])
    assert max(shares) <= 2
    late = [name for now, name in storm.attempts if now >= breaker_closed_at + 20]
    assert late.count("a") == pytest.approx(len(late) / 4, rel=0.05)
