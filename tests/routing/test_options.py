from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from gateway.routing.options import (
    BreakerOptions,
    HealthOptions,
    OptionInfo,
    Problem,
    QueueOptions,
    RetryOptions,
    TimeoutOptions,
    changed_options,
    describe,
    option,
    read_options,
)


@dataclass(frozen=True, slots=True)
class Sample:
    size: int = option(3, "How many", unit="things", minimum=1, maximum=5)
    share: float = option(0.5, "How much", minimum=0)
    name: str = option("a", "Which", choices=("a", "b"))
    enabled: bool = option(True, "Whether")
    most: int | None = option(None, "Up to")


def test_describe_gives_every_option_in_declared_order():
    infos = describe(Sample)
    assert [info.name for info in infos] == ["size", "share", "name", "enabled", "most"]
    assert infos[0] == OptionInfo("size", int, False, 3, "How many", "things", 1, 5, ())
    assert infos[4] == OptionInfo("most", int, True, None, "Up to", "", None, None, ())


@pytest.mark.parametrize("raw", [None, {}])
def test_read_nothing_gives_defaults(raw: dict[str, Any] | None):
    assert read_options(Sample, raw, "p") == (Sample(), [])


def test_read_good_values_gives_them():
    raw = {"size": 5, "share": 2, "name": "b", "enabled": False, "most": 7}
    assert read_options(Sample, raw, "p") == (Sample(5, 2.0, "b", False, 7), [])


def test_read_whole_number_for_float_gives_float():
    group, _ = read_options(Sample, {"share": 2}, "p")
    assert type(group.share) is float


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("size", 0, "0 is below the least allowed, 1"),
        ("size", 6, "6 is above the most allowed, 5"),
        ("size", True, "expected a whole number, got True"),
        ("size", 2.0, "expected a whole number, got 2.0"),
        ("size", None, "a value is needed"),
        ("share", "x", "expected a number, got 'x'"),
        ("share", float("nan"), "expected a number, got nan"),
        ("share", float("inf"), "expected a number, got inf"),
        ("enabled", 1, "expected true or false, got 1"),
        ("name", "c", "'c' is none of a, b"),
        ("sise", 1, "no such option; known: size, share, name, enabled, most"),
    ],
)
def test_read_wrong_value_keeps_default_and_says_why(name: str, value: Any, message: str):
    assert read_options(Sample, {name: value}, "pools[m].x") == (Sample(), [Problem(f"pools[m].x.{name}", message)])


def test_changed_options_are_what_reads_back_the_same():
    group = Sample(size=4, most=9)
    assert changed_options(group) == {"size": 4, "most": 9}
    assert read_options(Sample, changed_options(group), "p") == (group, [])


@pytest.mark.parametrize("group", [QueueOptions, BreakerOptions, RetryOptions, TimeoutOptions, HealthOptions])
def test_defaults_of_every_group_pass_their_own_check(group: type):
    raw = {info.name: info.default for info in describe(group)}
    assert read_options(group, raw, "p") == (group(), [])
    assert all(info.help for info in describe(group))
