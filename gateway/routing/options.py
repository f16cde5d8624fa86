"""Declared options: one dataclass field gives default, help and bounds to forms, API schema and YAML alike.

A group of options is a frozen dataclass whose fields are made by `option()`. `read_options` checks a plain mapping
(YAML, JSON, form) against it; `describe` lists it for forms, schemas and documentation. Nothing else states a default.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of an options dataclass. Bounds are inclusive."""
    meta = {"help": help, "unit": unit, "minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """What a form or a schema needs to know of one option. `type` is int, float, bool or str."""

    name: str
    type: type
    is_optional: bool
    default: Any
    help: str
    unit: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration. `path` leads to it: `pools[deepseek-v3].queue.size`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def describe(options: type) -> list[OptionInfo]:
    """The options of a group in their declared order."""
    return list(_described(options))


@functools.cache  # type hints are compiled each time they are asked for, and a build asks for every pool
def _described(options: type) -> list[OptionInfo]:
    hints = typing.get_type_hints(options)
    infos = []
    for field in dataclasses.fields(options):
        hint, is_optional = hints[field.name], False
        if isinstance(hint, types.UnionType):
            inner = [a for a in hint.__args__ if a is not types.NoneType]
            hint, is_optional = inner[0], True
        infos.append(OptionInfo(field.name, hint, is_optional, field.default, **field.metadata))
    return infos


def read_options(options: type[T], raw: Mapping[str, Any] | None, path: str) -> tuple[T, list[Problem]]:
    """The group with the values of `raw`, and what is wrong with them; a wrong value keeps its default."""
    known = {info.name: info for info in describe(options)}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in (raw or {}).items():
        info = known.get(name)
        if info is None:
            problems.append(Problem(f"{path}.{name}", f"no such option; known: {', '.join(known) or 'none'}"))
        elif message := _wrong(info, value):
            problems.append(Problem(f"{path}.{name}", message))
        else:
            values[name] = float(value) if info.type is float and value is not None else value
    return options(**values), problems


def changed_options(group: Any) -> dict[str, Any]:
    """The values of a group that differ from their defaults: what an export writes."""
    return {f.name: getattr(group, f.name) for f in dataclasses.fields(group) if getattr(group, f.name) != f.default}


def _wrong(info: OptionInfo, value: Any) -> str:
    if value is None:
        return "" if info.is_optional else "a value is needed"
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[info.type]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = is_number if info.type is float else type(value) is info.type
    if not fits or value != value or value in (float("inf"), float("-inf")):
        return f"expected {wanted}, got {value!r}"
    if info.minimum is not None and value < info.minimum:
        return f"{value} is below the least allowed, {info.minimum:g}"
    if info.maximum is not None and value > info.maximum:
        return f"{value} is above the most allowed, {info.maximum:g}"
    if info.choices and value not in info.choices:
        return f"{value!r} is none of {', '.join(info.choices)}"
    return ""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Where calls wait when a pool or all its workers are at their cap."""

    size: int | None = option(
        None,
        "Calls that may wait for a free place; 0 refuses at once; empty: twice the places of the pool",
        unit="calls",
        minimum=0,
        maximum=100_000,
    )
    timeout_s: float = option(1.0, "Longest wait of an interactive call", unit="s", minimum=0.01, maximum=600)
    batch_timeout_s: float = option(30.0, "Longest wait of a batch call", unit="s", minimum=0.01, maximum=3600)


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """When a worker is left alone because calls to it fail (closed = traffic flows)."""

    failure_threshold: int = option(
        5, "Failures in a row that open the breaker", unit="failures", minimum=1, maximum=10_000
    )
    success_ratio: float = option(
        0.8, "Share of successes below which the breaker opens; 0: only failures in a row count", minimum=0, maximum=1
    )
    ratio_minimum: int = option(
        10, "Answers in 10 s before that share counts", unit="answers", minimum=1, maximum=100_000
    )
    success_threshold: int = option(
        1, "Successes that close a half-open breaker", unit="successes", minimum=1, maximum=100
    )
    timeout_s: float = option(
        1.0,
        "How long the breaker keeps calls away the first time; each time in a row twice as long",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    longest_timeout_s: float = option(60.0, "The longest that grows to", unit="s", minimum=0.1, maximum=86_400)
    slow_start_s: float = option(
        15.0, "How long a worker's share grows after its breaker closed", unit="s", minimum=0, maximum=3600
    )


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Trying another worker before the first byte went to the client."""

    max_attempts: int = option(
        2, "Workers tried for one call, the first included", unit="attempts", minimum=1, maximum=10
    )
    budget_percent: float = option(
        20.0, "Retries, of the calls of the last 10 s; refused connections are free", unit="%", minimum=0, maximum=1000
    )
    concurrent: int = option(
        3, "Retries at once that may run beyond that budget", unit="retries", minimum=0, maximum=10_000
    )


@dataclass(frozen=True, slots=True)
class TimeoutOptions:
    connect_s: float = option(2.0, "Longest time to connect to a worker", unit="s", minimum=0.01, maximum=120)
    first_byte_s: float = option(
        60.0, "Longest wait for the first byte of an answer", unit="s", minimum=0.05, maximum=3600
    )
    idle_s: float = option(60.0, "Longest silence in the middle of an answer", unit="s", minimum=0.05, maximum=3600)
    total_s: float = option(3600.0, "Longest life of a call", unit="s", minimum=0.1, maximum=86_400)


@dataclass(frozen=True, slots=True)
class HealthOptions:
    """The probe of each worker."""

    enabled: bool = option(True, "Probe the workers; off: only the traffic itself tells")
    path: str = option("/health", "Path asked with GET; any 2xx is healthy")
    interval_s: float = option(2.0, "Time between two probes of a worker", unit="s", minimum=0.5, maximum=3600)
    timeout_s: float = option(2.0, "Longest wait for a probe's answer", unit="s", minimum=0.05, maximum=60)
    failure_threshold: int = option(
        3, "Failed probes in a row that make a worker unhealthy", unit="probes", minimum=1, maximum=100
    )
    success_threshold: int = option(
        1, "Good probes in a row that make it healthy again", unit="probes", minimum=1, maximum=100
    )
