from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.breaker import Breaker
from gateway.routing.options import BreakerOptions
from gateway.routing.requirement import Need
from gateway.routing.retry import Signal
from gateway.routing.worker import Worker
from tests.routing.pools import NEED, WHOLE, Shared, pool_of, worker

CAP, POOL_CAP = 3, 5
STEPS = st.tuples(st.integers(0, 2), st.sampled_from([1, 1, 2, 4]), st.booleans(), st.integers(0, 9))


def returned(slow_start_s: float = 10.0) -> Worker:
    """A worker whose breaker closed again at 100."""
    live = Worker(worker("a"), Breaker(BreakerOptions(1, timeout_s=1.0, slow_start_s=slow_start_s)))
    live.breaker.failed(98)
    live.breaker.succeeded(100, live.breaker.begin(99))
    return live


def taken_of(live: Worker, calls: int, now: float) -> int:
    """How many of so many calls of a pool of two it takes that takes whatever it may."""
    taken = 0
    for _ in range(calls):
        is_chosen = not live.is_held_back(now)
        live.counts_in_ramp(is_chosen, 2)
        taken += is_chosen
    return taken


def test_worker_load_is_that_of_the_host():
    host = Shared()
    ours, theirs = (Worker(worker("a"), Breaker(BreakerOptions()), host.cells_of(process)("a")) for process in (1, 2))
    for live, calls in ((ours, 2), (theirs, 3)):
        live.in_flight += calls
        live.cell.add(calls, 0)
    assert (ours.load, ours.in_flight, theirs.load, theirs.in_flight) == (5, 2, 5, 3)


def test_worker_just_returned_takes_one_call_and_a_tenth_of_its_share():
    assert taken_of(returned(), 100, now=100.0) == 1 + 5


def test_worker_half_way_through_slow_start_takes_half_its_share():
    assert taken_of(returned(), 100, now=105.0) == 1 + 25


def test_worker_after_slow_start_is_not_held_back():
    live = returned()
    assert (taken_of(live, 100, now=110.0), live.breaker.slow_since) == (100, None)


def test_worker_slow_start_off_is_not_held_back():
    assert taken_of(returned(slow_start_s=0), 100, now=100.0) == 100


def test_worker_that_returns_again_begins_its_share_anew():
    live = returned()
    taken_of(live, 100, now=109.0)
    live.breaker.failed(109)
    live.breaker.succeeded(150, live.breaker.begin(150))
    assert taken_of(live, 100, now=150.0) == 1 + 5


@given(st.lists(STEPS, max_size=60))
@settings(deadline=None)
def test_processes_never_exceed_a_cap_together(steps: list[tuple[int, int, bool, int]]):
    host = Shared()
    specs = (worker("a", max_in_flight=CAP), worker("b", max_in_flight=CAP))
    pools = [pool_of(*specs, max_in_flight=POOL_CAP, cell=host.cells_of(process)) for process in range(3)]
    running = []
    for process, size, comes, at in steps:
        if comes and (got := pools[process].admit(Need(WHOLE, size=size), 0)) is not None:
            name = got[1].worker.spec.name
            assert host.calls(name) <= max(CAP, size)
            assert host.calls("pool") <= max(POOL_CAP, size)
            running.append(got)
        elif not comes and running:
            call, lease = running.pop(at % len(running))
            lease.finish(Signal.SUCCESS, 0)
            lease.release()
            call.release()
    for call, lease in running:
        lease.release()
        call.release()
    assert [host.calls(name) for name in ("a", "b", "pool")] == [0, 0, 0]


def test_place_given_back_in_one_process_is_found_by_the_other_when_it_looks():
    host, woken = Shared(), []
    one, other = (pool_of(worker("a", max_in_flight=1), cell=host.cells_of(process)) for process in (1, 2))
    got = one.admit(NEED, 0)
    assert got is not None
    assert other.admit(NEED, 0) is None
    ticket = other.join(NEED, lambda: woken.append("x"), 0)
    assert ticket.admit(0) is None
    for lease in got:
        lease.release()
    other.wake()
    assert woken == ["x"]
    assert ticket.admit(1) is not None
