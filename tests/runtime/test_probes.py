"""When the last round of probes is too long ago."""

from __future__ import annotations

import pytest

from gateway.models import Pool
from gateway.runtime.probes import is_late


@pytest.mark.parametrize(
    ("age_s", "healths", "expected"),
    [
        (9.9, [{}], False),
        (10.1, [{}], True),
        (None, [{}], True),
        (29.0, [{"interval_s": 10}, {"interval_s": 20}], False),
        (31.0, [{"interval_s": 10}, {"interval_s": 20}], True),
        (None, [{"enabled": False}], False),
        (None, [], False),
    ],
)
def test_probes_are_late_after_ten_seconds_or_three_intervals(
    age_s: float | None, healths: list[dict[str, object]], expected: bool
) -> None:
    assert is_late(age_s, [Pool(health=health) for health in healths]) is expected
