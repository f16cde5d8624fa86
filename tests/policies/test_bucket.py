from __future__ import annotations

from typing import Any

import pytest

from gateway.policies.bucket import Bucket, BucketOptions
from gateway.routing.policy import Policy
from gateway.routing.worker import Worker
from tests.policies.candidates import Traffic, kept, need, worker, workers


def bucket(live: list[Worker], **options: Any) -> Policy:
    """Ranges only: balance is for the tests that say so."""
    return kept(Bucket(BucketOptions(**{"balance_abs": 1_000_000, **options})), live)


def chosen_for(policy: Policy, live: list[Worker], length: int, now: float = 0.0) -> str:
    return policy.choose(live, need(b"x" * length), now)[0].spec.name


@pytest.mark.parametrize(
    ("length", "name"), [(0, "0"), (1023, "0"), (1024, "1"), (3071, "2"), (3072, "3"), (99_999, "3")]
)
def test_bucket_at_first_has_equal_ranges_with_the_last_one_open(length: int, name: str):
    live = workers(0, 0, 0, 0)
    assert chosen_for(bucket(live), live, length) == name


def test_bucket_range_of_absent_worker_goes_to_the_nearest_with_the_least_sum():
    live = workers(0, 0, 0, 0)
    policy = bucket(live)
    policy.taken(live[0], need(b"x"), 0.0)
    assert chosen_for(policy, [live[0], live[2], live[3]], 1500) == "2"
    assert chosen_for(policy, live[2:], 10) == "2"


def test_bucket_out_of_balance_takes_least_sum():
    live = workers(0, 0)
    policy = bucket(live, balance_abs=64)
    policy.taken(live[0], need(b"x" * 64), 0.0)
    assert chosen_for(policy, live, 5) == "0"
    policy.taken(live[0], need(b"x"), 0.0)
    assert policy.choose(live, need(b"x" * 5), 0.0) == (live[1], [(65, 0), (0, 2048)])


def test_bucket_relative_threshold_must_be_passed_too():
    live = workers(0, 0)
    policy = bucket(live, balance_abs=64)
    policy.taken(live[0], need(b"x" * 300), 0.0)
    policy.taken(live[1], need(b"x" * 200), 0.0)
    assert chosen_for(policy, live, 5) == "0"
    policy.taken(live[0], need(b"x"), 0.0)
    assert chosen_for(policy, live, 5) == "1"


def test_bucket_sums_reach_one_interval_back():
    live = workers(0, 0)
    policy = bucket(live, balance_abs=64)
    policy.taken(live[0], need(b"x" * 500), 10.0)
    assert [chosen_for(policy, live, 5, now) for now in (15.0, 15.1)] == ["1", "0"]
    policy.taken(live[1], need(b"x"), 20.0)
    assert policy.choose(live, need(), 20.0)[1] == [(0, 0), (1, 2048)]


def test_bucket_ranges_are_cut_to_equal_sums_each_interval():
    live = workers(0, 0)
    policy = bucket(live)
    for at in range(60):  # 54 short ones sum up to as much as 6 long ones
        policy.taken(live[0], need(b"x" * (900 if at % 10 == 0 else 100)), at / 12)
    assert chosen_for(policy, live, 900, 4.9) == "0"
    policy.taken(live[0], need(b"x" * 100), 5.0)
    assert [chosen_for(policy, live, length, 5.0) for length in (100, 101, 900)] == ["0", "1", "1"]


def test_bucket_too_few_or_empty_calls_leave_the_ranges():
    live = workers(0, 0)
    policy = bucket(live)
    for now in (0.0, 5.0, 20.0, 20.1, 25.0):
        policy.taken(live[0], need(), now)
    assert [chosen_for(policy, live, length, 25.0) for length in (2047, 2048)] == ["0", "1"]


def test_bucket_new_worker_in_place_of_another_has_its_range():
    live = workers(0, 0)
    policy = bucket(live)
    policy.taken(live[1], need(b"x" * 100), 0.0)
    replaced = [live[0], worker("new")]
    policy.keep(replaced)
    assert policy.choose(replaced, need(b"x" * 3000), 0.0) == (replaced[1], [(0, 0), (0, 2048)])


def test_bucket_other_number_of_workers_cuts_by_what_was_seen():
    live = workers(0, 0, 0)
    policy = bucket(live[:2])
    for length in (10, 20, 30):
        policy.taken(live[0], need(b"x" * length), 0.0)
    policy.keep(live)
    assert [its[1] for its in policy.choose(live, need(), 0.0)[1]] == [0, 20, 30]


def test_bucket_remembers_a_bounded_number_of_calls():
    live = workers(0, 0)
    policy = bucket(live)
    for _ in range(3000):
        policy.taken(live[0], need(b"x"), 0.0)
    assert policy.choose(live, need(), 0.0)[1] == [(2048, 0), (0, 2048)]


def test_bucket_short_and_long_calls_are_kept_apart():
    live = workers(0, 0)
    traffic = Traffic(bucket(live))
    for at in range(100):
        traffic.call(live, need(b"x" * (4000 if at % 10 == 0 else 50)), at / 5)
    assert traffic.served == {"0": 90, "1": 10}
