"""What engines say of their load, read from the formats that they say it in. One file of an engine's words each.

    GET /v1/loads   SGLang and SMG: {"loads": [one record for each data-parallel rank]}
    GET /get_load   SGLang before that: the list alone, with other names
    GET /metrics    vLLM and SGLang: Prometheus text, a series for each engine or rank

Ranks share the calls of a worker: counts, tokens and throughput are added up, the use of memory is the mean. Of several
series of one rank (its tensor-parallel parts, its priorities) the largest counts. What is not said is left out; what is
no number in range is not said. An answer without one number to use gives None, so does one above `LIMIT_BYTES`.

Names as of SGLang 0.5 (srt/managers/io_struct, srt/metrics) and vLLM 0.10 (v1/metrics), 2025.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import msgspec

LIMIT_BYTES = 1 << 20  # a page of metrics with its histograms is 50 to 300 KiB
_HIGHEST = 1e12


class Figures(TypedDict, total=False):
    """The numbers of one worker, named as in `routing.worker.LoadReport`."""

    running: int
    waiting: int
    queued_tokens: int
    tokens_per_s: float
    cache_use: float


@dataclass(frozen=True, slots=True)
class Source:
    """A path that some engines answer with their load, and how to read what they answer."""

    path: str
    read: Callable[[bytes], Figures | None]


_Rank = Mapping[str, float]


def read_loads(body: bytes) -> Figures | None:
    """The figures of an answer to GET /v1/loads."""
    answer = _decode(body)
    records = answer.get("loads") if isinstance(answer, dict) else None
    return _figures(_ranks(records, _LOADS))


def read_get_load(body: bytes) -> Figures | None:
    """The figures of an answer to GET /get_load, where `num_reqs` includes those that wait."""
    ranks = _ranks(_decode(body), _GET_LOAD)
    for rank in ranks:
        if "requests" in rank and "waiting" in rank:
            rank["running"] = max(0.0, rank["requests"] - rank["waiting"])
    return _figures(ranks)


def read_metrics(body: bytes) -> Figures | None:
    """The figures of a page of metrics."""
    ranks: dict[bytes, dict[str, float]] = {}
    if len(body) <= LIMIT_BYTES:
        for series, labels, text in _SERIES.findall(body):
            name, number = _METRICS[series.decode()], _number(_parse(text))
            if number is not None:
                rank = ranks.setdefault(b" ".join(_RANK.findall(labels)), {})
                rank[name] = max(number, rank.get(name, 0.0))
    return _figures(ranks.values())


# The best first: only the first of them knows of tokens that wait.
SOURCES = (
    Source("/v1/loads?include=core", read_loads),
    Source("/get_load", read_get_load),
    Source("/metrics", read_metrics),
)

_LOADS = {
    "num_running_reqs": "running",
    "num_waiting_reqs": "waiting",
    "num_waiting_uncached_tokens": "queued_tokens",
    "gen_throughput": "tokens_per_s",
    "token_usage": "cache_use",
}
_GET_LOAD = {"num_reqs": "requests", "num_waiting_reqs": "waiting", "num_pending_tokens": "queued_tokens"}
_METRICS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:gpu_cache_usage_perc": "cache_use",
    "vllm:kv_cache_usage_perc": "cache_use",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:token_usage": "cache_use",
    "sglang:gen_throughput": "tokens_per_s",
}
_SERIES = re.compile(
    rb"^(%b)(\{[^\n]*\})?[ \t]+([0-9.eE+-]{1,32})[ \t\r]*+(?:[0-9]++[ \t\r]*+)?$"
    % b"|".join(name.encode() for name in _METRICS),
    re.MULTILINE,
)
_RANK = re.compile(rb'[{,]\s*((?:engine|dp_rank|model_name)="[^"]*")')


def _decode(body: bytes) -> object:
    if len(body) > LIMIT_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _ranks(records: object, names: Mapping[str, str]) -> list[dict[str, float]]:
    ranks = []
    for record in records if isinstance(records, list) else ():
        if not isinstance(record, dict):
            return []
        numbers = {name: _number(record.get(field)) for field, name in names.items()}
        ranks.append({name: number for name, number in numbers.items() if number is not None})
    return ranks


def _parse(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= _HIGHEST else None


def _figures(ranks: Iterable[_Rank]) -> Figures | None:
    ranks = list(ranks)
    figures: Figures = {}
    if said := _said(ranks, "running"):
        figures["running"] = round(sum(said))
    if said := _said(ranks, "waiting"):
        figures["waiting"] = round(sum(said))
    if said := _said(ranks, "queued_tokens"):
        figures["queued_tokens"] = round(sum(said))
    if said := _said(ranks, "tokens_per_s"):
        figures["tokens_per_s"] = sum(said)
    if said := _said(ranks, "cache_use"):
        figures["cache_use"] = min(1.0, sum(said) / len(said))
    return figures or None


def _said(ranks: Sequence[_Rank], name: str) -> list[float]:
    return [rank[name] for rank in ranks if name in rank]
