from __future__ import annotations

import pytest

from gateway.routing.decision import Decision, decision
from gateway.routing.health import Health, HealthView
from gateway.routing.requirement import Need
from tests.routing.pools import NEED, pool_of, worker


def test_decision_names_candidates_terms_and_the_others_reasons():
    pool = pool_of(worker("a"), worker("b"), worker("c"))
    pool.workers[2].health = HealthView(Health.UNHEALTHY)
    got = pool.admit(NEED, 0)
    assert got is not None
    why = got[1].decision
    assert (why.policy, why.chosen, why.candidates, why.excluded) == (
        "round_robin",
        "a",
        ("a", "b"),
        (("c", "unhealthy"),),
    )


def test_decision_of_many_is_bounded_and_keeps_the_chosen_one():
    names = [f"w{at}" for at in range(100)]
    terms = [(float(at),) for at in range(100)]
    made = decision("p", "w50", names, ("load",), terms, [(name, "full") for name in names])
    assert (len(made.candidates), len(made.excluded), made.left_out) == (16, 16, 168)
    assert (made.candidates[-1], made.terms[-1]) == ("w50", (50.0,))


def test_small_decision_is_kept_whole():
    made = decision("p", "a", ["a"], (), (), [])
    assert made == Decision("p", "a", ("a",))


def test_explain_says_where_a_call_would_go_and_changes_nothing():
    pool = pool_of(worker("a"), worker("b"))
    before = [pool.explain(NEED, 0) for _ in range(2)]
    assert [each.chosen for each in before] == ["a", "a"]
    assert pool.in_flight == 0


def test_explain_of_a_call_that_cannot_go_has_nobody_chosen():
    pool = pool_of(worker("a"))
    why = pool.explain(Need(NEED.requirement, target="x"), 0)
    assert (why.chosen, why.candidates, why.excluded) == ("", (), (("a", "not the target"),))


@pytest.mark.parametrize("candidates", [[], [f"w{at}" for at in range(20)]])
def test_decision_nobody_chosen_of_many_names_sixteen(candidates: list[str]):
    excluded = [(f"x{at}", "at its cap") for at in range(17)]
    made = decision("p", "", candidates, (), (), excluded)
    left_out = len(candidates[16:]) + 1
    expected = Decision("p", "", tuple(candidates[:16]), excluded=tuple(excluded[:16]), left_out=left_out)
    assert made == expected
