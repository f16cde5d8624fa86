"""power_of_two and least_load: what the workers say of themselves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from gateway.policies.least_load import LeastLoad, LeastLoadOptions
from gateway.policies.power_of_two import PowerOfTwo, PowerOfTwoOptions
from gateway.routing.policy import Policy, Terms
from gateway.routing.worker import LoadReport, Worker
from tests.policies.candidates import NEED, Traffic, kept, need, worker, workers


def says(**fields: Any) -> LoadReport:
    return LoadReport(1_700_000_000.0, **fields)


def two(live: list[Worker], *numbers: float) -> Policy:
    """Draws the first two workers unless the numbers say otherwise."""
    return kept(PowerOfTwo(PowerOfTwoOptions(), itertools.cycle(numbers or [0.0]).__next__), live)


def least(live: list[Worker], **options: Any) -> Policy:
    return kept(LeastLoad(LeastLoadOptions(**options)), live)


def first_terms(terms: Iterable[Terms]) -> list[float]:
    return [its[0] for its in terms]


def test_power_of_two_chooses_fewer_calls_of_the_two_drawn():
    live = workers(3, 2, 0)
    assert two(live).choose(live, NEED, 0.0) == (live[1], [(0.0, 3, 1.0), (0.0, 2, 1.0), (0.0, 0.0, 0.0)])


def test_power_of_two_draws_every_pair_of_distinct_workers_alike():
    live = workers(0, 0, 0)
    thirds = [0.0, 0.34, 0.67]
    pairs = set()
    for first, second in itertools.product(thirds, [0.0, 0.5]):
        _, terms = two(live, first, second).choose(live, NEED, 0.0)
        pairs.add((int(first * 3), tuple(at for at, its in enumerate(terms) if its[2])))
    assert pairs == {(0, (0, 1)), (0, (0, 2)), (1, (0, 1)), (1, (1, 2)), (2, (0, 2)), (2, (1, 2))}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (says(cache_use=0.7), says(cache_use=0.2)),
        (says(cache_use=0.7, queued_tokens=0), says(cache_use=0.2, queued_tokens=9)),
        (says(cache_use=0.1, queued_tokens=500), says(queued_tokens=9)),
    ],
)
def test_power_of_two_where_both_tell_their_tokens_these_decide(one: LoadReport, other: LoadReport):
    live = [worker("a", 0, report=one), worker("b", 9, report=other)]
    assert two(live).choose(live, NEED, 0.0)[0] is live[1]


@pytest.mark.parametrize("other", [None, says(), says(running=3), says(queued_tokens=0)])
def test_power_of_two_where_one_does_not_tell_calls_decide(other: LoadReport | None):
    live = [worker("a", 0, report=says(cache_use=0.9)), worker("b", 9, report=other)]
    assert two(live).choose(live, NEED, 0.0)[0] is live[0]


def test_power_of_two_equal_tokens_calls_decide():
    live = [worker("a", 5, report=says(cache_use=0.5)), worker("b", 4, report=says(cache_use=0.5))]
    assert two(live).choose(live, NEED, 0.0)[0] is live[1]


def test_power_of_two_stale_reports_count_as_none():
    live = [worker("a", 0, report=says(cache_use=0.9)), worker("b", 9, report=says(cache_use=0.1))]
    policy = two(live)
    policy.taken(live[0], NEED, 100.0)
    assert policy.choose(live, NEED, 130.0)[0] is live[1]
    assert policy.choose(live, NEED, 130.1)[0] is live[0]


def test_least_load_is_the_formula():
    live = [
        worker("a", report=says(queued_tokens=3000, tokens_per_s=1500.0, cache_use=0.5)),
        worker("b", report=says(queued_tokens=1000, tokens_per_s=1000.0, cache_use=0.9)),
    ]
    policy = least(live)
    policy.taken(live[0], need(b"x", input_tokens=600), 0.0)
    chosen, terms = policy.choose(live, NEED, 0.0)
    assert chosen is live[1]
    assert first_terms(terms) == pytest.approx([2.4 + 0.15 * 0.5 / 0.5, 1.0 + 0.15 * 0.9 / 0.1])
    assert [its[1:] for its in terms] == [(3000, 600, 1500.0, 0.5), (1000, 0, 1000.0, 0.9)]


def test_least_load_full_memory_is_bounded():
    live = [worker("a", report=says(cache_use=1.0)), worker("b", report=says(cache_use=0.0))]
    assert first_terms(least(live).choose(live, NEED, 0.0)[1]) == pytest.approx([0.15 * 999, 0.0])


@pytest.mark.parametrize("told", [None, 0.0])
def test_least_load_worker_without_throughput_has_the_default(told: float | None):
    live = [worker("a", report=says(queued_tokens=500, tokens_per_s=told))]
    assert least(live, default_tokens_per_s=250.0).choose(live, NEED, 0.0)[1] == [(2.0, 500, 0, 250.0, 0.0)]


def test_least_load_worker_that_tells_calls_only_queues_a_mean_prompt_each():
    live = [worker("a", report=says(waiting=3))]
    assert least(live, mean_prefill_tokens=100).choose(live, NEED, 0.0)[1] == [(0.15, 300, 0, 2000.0, 0.0)]


def test_least_load_new_report_resets_what_was_sent():
    live = [worker("a", report=says(queued_tokens=0))]
    policy = least(live)
    policy.taken(live[0], need(b"x", input_tokens=700), 0.0)
    policy.taken(live[0], NEED, 0.0)  # its length is not known: a mean prompt
    assert policy.choose(live, NEED, 0.0)[1][0][2] == 700 + 1024
    live[0].report = says(queued_tokens=0)  # an equal one, but another
    assert policy.choose(live, NEED, 1.0)[1][0][2] == 0
    policy.taken(live[0], need(b"x", input_tokens=5), 1.0)
    assert policy.choose(live, NEED, 1.0)[1][0][2] == 5


def test_least_load_worker_without_report_is_judged_by_calls_at_the_mean_throughput():
    live = [
        worker("a", report=says(queued_tokens=4000, tokens_per_s=1000.0)),
        worker("b", report=says(queued_tokens=9000, tokens_per_s=3000.0)),
        worker("c", 4),
    ]
    chosen, terms = least(live, mean_prefill_tokens=1000).choose(live, NEED, 0.0)
    assert (chosen, first_terms(terms)) == (live[2], [4.0, 3.0, 2.0])


def test_least_load_without_any_report_is_the_shortest_queue():
    live = [worker("a", 2, turn=1), worker("b", 1, turn=3), worker("c", 1, turn=2)]
    assert least(live).choose(live, NEED, 0.0)[0] is live[2]


def test_least_load_stale_report_counts_as_none():
    live = [worker("a", 0, report=says(queued_tokens=9999)), worker("b", 1)]
    policy = least(live, stale_s=10.0)
    policy.taken(live[1], NEED, 50.0)
    assert policy.choose(live, NEED, 60.0)[0] is live[1]
    assert policy.choose(live, NEED, 60.1)[0] is live[0]


def test_least_load_at_waiting_limit_gets_none_while_others_are_below():
    live = [worker("a", report=says(waiting=8, queued_tokens=0)), worker("b", report=says(waiting=7, queued_tokens=9))]
    assert least(live).choose(live, NEED, 0.0)[0] is live[0]
    assert least(live, max_waiting_requests=8).choose(live, NEED, 0.0)[0] is live[1]
    assert least(live, max_waiting_requests=7).choose(live, NEED, 0.0)[0] is live[0]


def test_least_load_between_reports_spreads_by_throughput():
    live = [
        worker(str(at), report=says(queued_tokens=0, tokens_per_s=speed)) for at, speed in enumerate((3000.0, 1000.0))
    ]
    served = Traffic(least(live, stale_s=1000.0)).calls(
        400, lambda at: live, itertools.repeat(need(b"x", input_tokens=100))
    )
    assert served == {"0": 300, "1": 100}
