"""What was counted, as values that can be added up: the metrics of one process, and of several together.

A sample is a list of numbers: `[value]`, or for a histogram its buckets (not cumulative, the last one open) and the
sum. Counters and histograms of dead processes stay in the sum, for else it would fall; gauges end with their process.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

# From a cache hit to the longest answer that a default configuration waits for.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

Labels = tuple[str, ...]
Samples = dict[Labels, list[float]]


class Kind(enum.Enum):
    """How samples of several processes become one."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE_SUM = "sum"
    GAUGE_MAX = "max"


class Family(msgspec.Struct, array_like=True):
    """One metric with its samples by label values."""

    kind: Kind
    help: str
    labels: Labels
    samples: Samples


class State(msgspec.Struct, array_like=True):
    """All metrics of one process. `run` is unique to a process; `folded` is used by the sum of the dead ones only."""

    run: str
    families: dict[str, Family]
    folded: list[str] = []


def merge(states: Iterable[State]) -> dict[str, Family]:
    """The families of all states together. The first definition of a name stands; another release's is left out."""
    merged: dict[str, Family] = {}
    for state in states:
        for name, family in state.families.items():
            into = merged.get(name)
            if into is None:
                into = merged[name] = Family(family.kind, family.help, family.labels, {})
            if (into.kind, into.labels) == (family.kind, family.labels):
                _add(into, family)
    return merged


def lasting(families: dict[str, Family]) -> dict[str, Family]:
    """What outlives its process."""
    return {name: family for name, family in families.items() if family.kind in (Kind.COUNTER, Kind.HISTOGRAM)}


def render(families: dict[str, Family]) -> bytes:
    """Prometheus text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_FamilyCollector(families))
    return generate_latest(registry)


def _add(into: Family, family: Family) -> None:
    for labels, values in family.samples.items():
        known = into.samples.get(labels)
        if known is None:
            into.samples[labels] = list(values)
        elif len(known) == len(values):
            both = zip(known, values, strict=True)
            into.samples[labels] = [max(a, b) if family.kind is Kind.GAUGE_MAX else a + b for a, b in both]


class _FamilyCollector(Collector):
    def __init__(self, families: dict[str, Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for name, family in sorted(self._families.items()):
            if family.kind is Kind.HISTOGRAM:
                yield _histogram(name, family)
                continue
            metric_class = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
            metric = metric_class(name, family.help, labels=family.labels)
            for labels, (value,) in family.samples.items():
                metric.add_metric(labels, value)
            yield metric


def _histogram(name: str, family: Family) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(name, family.help, labels=family.labels)
    bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
    for labels, (*counts, total) in family.samples.items():
        if len(counts) != len(bounds):  # kept by another release
            continue
        so_far, buckets = 0.0, []
        for bound, count in zip(bounds, counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        metric.add_metric(labels, buckets, total)
    return metric
