from __future__ import annotations

import pytest

from gateway.routing.requirement import Profile, Requirement

NEED = Requirement("chat", "m", is_streaming=True)


@pytest.mark.parametrize(
    ("profile", "fits"),
    [
        (Profile(), True),
        (Profile(services=frozenset({"chat", "speech"})), True),
        (Profile(services=frozenset({"speech"})), False),
        (Profile(models=frozenset({"m"})), True),
        (Profile(models=frozenset({"other"})), False),
        (Profile(streaming=True), True),
        (Profile(streaming=False), False),
        (Profile(frozenset({"chat"}), frozenset({"m"}), streaming=False), False),
    ],
)
def test_profile_satisfies_only_when_every_fact_fits(profile: Profile, fits: bool):
    assert profile.satisfies(NEED) is fits
