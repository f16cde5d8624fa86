from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.snapshot import WorkerId
from gateway.routing.sticky import Claim, StickyMap, Workers, digest

A, B, C = map(WorkerId, "abc")


def memory(max_idle_s: float = 1000.0, max_keys: int = 100) -> StickyMap:
    return StickyMap(max_idle_s, max_keys)


def settled(sticky: StickyMap, now: float = 0.0) -> StickyMap:
    """The same after everything it had to tell was accepted."""
    for claim in sticky.claims(1000):
        sticky.settle(claim, claim.workers, now)
    return sticky


def known(key: str, *served: WorkerId) -> StickyMap:
    sticky = memory()
    for each in served:
        sticky.served(key, each, 0.0)
    return settled(sticky)


def test_digest_tells_keys_apart_and_shows_nothing_of_them():
    assert len({digest("user 1"), digest("user 2"), digest("\ud800")}) == 3
    assert (len(digest("user 1")), digest("user 1")) == (32, digest("user 1"))


def test_key_has_its_workers_in_the_order_they_came_and_the_last_two_only():
    sticky, seen = memory(), []
    for each in (A, A, B, A, C, B):
        sticky.served("k", each, 0.0)
        seen.append(sticky.get("k", 0.0))
    assert seen == [(A,), (A,), (A, B), (A, B), (B, C), (B, C)]


def test_key_not_used_is_forgotten_after_the_idle_time():
    sticky = memory(max_idle_s=10)
    sticky.served("k", A, 0.0)
    sticky.served("k", A, 5.0)
    assert [sticky.get("k", now) for now in (14.9, 15.0)] == [(A,), ()]
    sticky.served("other", B, 15.0)
    assert (len(sticky), sticky.keys_of(A), sticky.keys_of(B)) == (1, 0, 1)


def test_key_forgotten_and_used_again_is_a_new_one():
    sticky = memory(max_idle_s=10)
    sticky.served("k", A, 0.0)
    settled(sticky).served("k", B, 10.0)
    assert (sticky.get("k", 10.0), sticky.claims(9)) == ((B,), [Claim("k", (), (B,))])


def test_keys_beyond_the_most_push_out_the_one_used_longest_ago():
    sticky = memory(max_keys=2)
    for at, key in enumerate(["1", "2", "1", "3"]):
        sticky.served(key, A, float(at))
    assert [sticky.get(key, 4.0) for key in "123"] == [(A,), (), (A,)]
    assert (len(sticky), sticky.keys_of(A), [claim.key for claim in sticky.claims(9)]) == (2, 2, ["1", "3"])


def test_keys_of_worker_counts_those_that_have_it():
    sticky = memory()
    for key, each in (("1", A), ("1", B), ("2", A), ("3", C)):
        sticky.served(key, each, 0.0)
    sticky.learn("2", (C,), 0.0)  # counts for nothing, as "2" is not told yet
    assert [sticky.keys_of(each) for each in (A, B, C)] == [2, 1, 1]


def test_claims_stay_the_same_until_they_are_settled():
    sticky = memory()
    for key in "123":
        sticky.served(key, A, 0.0)
    assert sticky.claims(2) == sticky.claims(2) == [Claim("1", (), (A,)), Claim("2", (), (A,))]
    assert settled(sticky).claims(9) == []


def test_key_in_use_is_told_again_after_a_minute_or_a_quarter_of_the_idle_time():
    for idle_s, told_s in ((14_400, 60.0), (40, 10.0)):
        sticky = memory(max_idle_s=idle_s)
        sticky.served("k", A, 0.0)
        settled(sticky, now=1.0).served("k", A, told_s + 0.9)
        assert sticky.claims(9) == []
        sticky.served("k", A, told_s + 1.0)
        assert sticky.claims(9) == [Claim("k", (A,), (A,))]


def test_claim_lost_what_stands_replaces_what_was_chosen_here():
    sticky = memory()
    sticky.served("k", A, 0.0)
    (claim,) = sticky.claims(9)
    sticky.settle(claim, (C,), 0.0)
    assert (sticky.get("k", 0.0), sticky.keys_of(A), sticky.keys_of(C), sticky.claims(9)) == ((C,), 0, 1, [])


def test_claim_won_while_the_key_changed_again_leads_to_the_next_one():
    sticky = memory()
    sticky.served("k", A, 0.0)
    (claim,) = sticky.claims(9)
    sticky.served("k", B, 0.0)
    sticky.settle(claim, (A,), 0.0)
    assert (sticky.get("k", 0.0), sticky.claims(9)) == ((A, B), [Claim("k", (A,), (A, B))])


def test_claim_lost_while_the_key_changed_again_is_lost_for_both_changes():
    sticky = memory()
    sticky.served("k", A, 0.0)
    (claim,) = sticky.claims(9)
    sticky.served("k", B, 0.0)
    sticky.settle(claim, (C,), 0.0)
    assert (sticky.get("k", 0.0), sticky.claims(9)) == ((C,), [])


def test_claim_of_a_key_that_was_pushed_out_changes_nothing():
    sticky = memory(max_keys=1)
    sticky.served("1", A, 0.0)
    (claim,) = sticky.claims(9)
    sticky.served("2", B, 0.0)
    sticky.settle(claim, (A,), 0.0)
    assert (sticky.get("1", 0.0), len(sticky)) == ((), 1)


def test_learnt_key_is_known_and_has_nothing_to_tell():
    sticky = memory()
    sticky.learn("k", (A, B), 5.0)
    assert (sticky.get("k", 1004.9), sticky.get("k", 1005.0), sticky.claims(9)) == ((A, B), (), [])
    sticky.served("k", C, 6.0)
    assert sticky.claims(9) == [Claim("k", (A, B), (B, C))]


def test_learnt_workers_replace_those_known_and_do_not_shorten_the_key_s_life():
    sticky = known("k", A)
    sticky.served("k", A, 50.0)
    sticky.learn("k", (B,), 10.0)
    assert (sticky.get("k", 1049.0), sticky.keys_of(A), sticky.keys_of(B)) == ((B,), 0, 1)


steps = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from("kl"), st.sampled_from([A, B, C]), st.booleans()), max_size=40
)


@settings(deadline=None, max_examples=200)
@given(steps=steps)
def test_two_processes_that_claim_in_any_order_agree_when_all_is_told(
    steps: list[tuple[int, str, WorkerId, bool]],
):
    processes, stands = (memory(), memory()), dict[str, Workers]()

    def tell(teller: StickyMap, other: StickyMap) -> None:
        for claim in teller.claims(9):
            if stands.get(claim.key, ()) in ((), claim.before):
                stands[claim.key] = claim.workers
                other.learn(claim.key, claim.workers, 0.0)
            teller.settle(claim, stands[claim.key], 0.0)

    for process, key, each, tells in steps:
        processes[process].served(key, each, 0.0)
        if tells:
            tell(processes[process], processes[1 - process])
    for process in (0, 1):
        tell(processes[process], processes[1 - process])
    for process in processes:
        assert {key: process.get(key, 0.0) for key in stands} == stands
