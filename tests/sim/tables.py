"""The scenarios, who takes part in each, and the figures of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from gateway.routing.options import QueueOptions, RetryOptions
from tests.sim.engine import A100, L4, RTX4090, XEON, Kind
from tests.sim.fleet import NEVER, Answer, Contender, Fleet, Setting, Trouble
from tests.sim.workloads import Burst, Request, chats, independent

_WARM_UP = 0.1  # share of the requests that are not counted
Figures = dict[str, float]

ROUND_ROBIN = Contender("round_robin", "round_robin")
LEAST_REQUESTS = Contender("least_requests", "least_requests")
POWER_OF_TWO = Contender("power_of_two", "power_of_two")
WEIGHTED = Contender("weighted_least_requests", "weighted_least_requests")
ADAPTIVE = Contender("adaptive", "adaptive")
ADAPTIVE_CODE = Contender("adaptive, alpha 1, no streak", "adaptive", {"alpha": 1.0, "failure_streak": 0})
ADAPTIVE_BLIND = Contender("adaptive, alpha 1, no weights", "adaptive", {"alpha": 1.0, "use_weights": False})
LEAST_LOAD = Contender("least_load", "least_load")
CACHE_AWARE = Contender("cache_aware", "cache_aware")
CONSISTENT = Contender("consistent_hashing", "consistent_hashing")
PREFIX_HASH = Contender("prefix_hash", "prefix_hash")
PREDICT = Contender("predict", "predict")
PREDICT_EAGER = Contender("predict without late binding", "predict", {}, binds_late=False)
PREDICT_HALF = Contender("predict, random half", "predict", {"random_half": True})

_BASE = (
    ROUND_ROBIN,
    LEAST_REQUESTS,
    POWER_OF_TWO,
    WEIGHTED,
    ADAPTIVE,
    ADAPTIVE_CODE,
    ADAPTIVE_BLIND,
    LEAST_LOAD,
    PREDICT,
)
_CAPPED = (*_BASE[:-1], PREDICT_EAGER, PREDICT)
_PREFIX = (
    ROUND_ROBIN,
    LEAST_REQUESTS,
    ADAPTIVE_CODE,
    LEAST_LOAD,
    CACHE_AWARE,
    PREFIX_HASH,
    CONSISTENT,
    PREDICT,
)

_THREE = (A100, RTX4090, XEON)
_EIGHT = (A100, A100, RTX4090, RTX4090, RTX4090, L4, L4, XEON)
_FIVE = (A100, A100, RTX4090, RTX4090, RTX4090)


@dataclass(frozen=True, slots=True)
class Column:
    """A figure in a table."""

    title: str
    name: str
    digits: int
    shows_spread: bool = False


TTFT = Column("TTFT mean ms", "ttft_ms", 0, True)
TTFT_P50 = Column("TTFT p50", "ttft_p50_ms", 0)
TTFT_P99 = Column("TTFT p99", "ttft_p99_ms", 0, True)
E2E = Column("E2E mean s", "e2e_s", 2)
E2E_P99 = Column("E2E p99 s", "e2e_p99_s", 1)
SLO = Column("SLO %", "slo", 1)
SPEED = Column("tok/s", "tokens_per_s", 0)
SLOWEST = Column("slowest %", "slowest", 1)
ERRORS = Column("errors %", "errors", 2)
HITS = Column("cache hit %", "hits", 1)
GOODPUT = Column("good/s", "goodput", 1)
REFUSED = Column("refused %", "refused", 0)

_USUAL = (TTFT, TTFT_P50, TTFT_P99, E2E, E2E_P99, SLO, SPEED, SLOWEST)


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """One table: the contenders in one setting with the same requests for each seed."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    setting: Setting
    arrivals: Callable[[int, int], list[Request]]  # of a number of requests and a seed
    seeds: tuple[int, ...]
    number: int = 4000
    columns: tuple[Column, ...] = _USUAL
    slo_ttft_s: float = 1.0


def _slots(kinds: Sequence[Kind]) -> tuple[int, ...]:
    return tuple(kind.slots for kind in kinds)


def _steady(per_s: float, offset: int = 0) -> Callable[[int, int], list[Request]]:
    return lambda number, seed: independent(number, per_s, seed + offset)


def _bursts(number: int, seed: int) -> list[Request]:
    return independent(number, 27.0, seed + 10, Burst())


def _chats(number: int, seed: int) -> list[Request]:
    return chats(number, 90.0, seed + 20)


_THRICE = (101, 102, 103)
_TWICE = (101, 102)


def _seed_cluster() -> list[Scenario]:
    titles = {"A15": ("15 %", 2.4), "A50": ("50 %", 8.0), "A80": ("80 %", 12.8)}
    return [
        Scenario(
            name,
            f"{name}. A100 + 4090 + Xeon, {per_s} requests/s (about {share} of what they can do)",
            _BASE,
            Setting(_THREE),
            _steady(per_s),
            _THRICE,
        )
        for name, (share, per_s) in titles.items()
    ]


def _large_cluster() -> list[Scenario]:
    title = "2 A100, 3 4090, 2 L4, Xeon, about 70 % with bursts of twice the rate"
    capped = Setting(_EIGHT, caps=_slots(_EIGHT))
    return [
        Scenario("B", f"B. {title}", _BASE[1:], Setting(_EIGHT), _bursts, _TWICE, 6000),
        Scenario("B-cap", "B-cap. The same with caps at the batch slots", _CAPPED[1:], capped, _bursts, _TWICE, 6000),
        Scenario(
            "B-4gw",
            "B-4gw. The same as B through 4 gateways that share nothing",
            (*_BASE[1:], PREDICT_HALF),
            Setting(_EIGHT, gateways=4),
            _bursts,
            _TWICE,
            6000,
        ),
    ]


def _black_hole() -> list[Scenario]:
    trouble = (Trouble(60.0, 90.0, 0, None),)
    forms = {
        "E-none": ("no retry, no breaker", NEVER, 1),
        "E-retry": ("one retry, no breaker", NEVER, 2),
        "E-both": ("one retry and the breaker", None, 2),
    }
    scenarios = []
    for name, (form, breaker, attempts) in forms.items():
        retry = RetryOptions(max_attempts=attempts)
        setting = Setting(_FIVE, troubles=trouble, retry=retry)
        if breaker is not None:
            setting = Setting(_FIVE, troubles=trouble, retry=retry, breaker=breaker)
        scenarios.append(
            Scenario(
                name,
                f"{name}. One of 2 A100 and 3 4090 answers 503 within 1 ms from 60 s to 90 s: {form}",
                (ROUND_ROBIN, LEAST_REQUESTS, WEIGHTED, ADAPTIVE, ADAPTIVE_CODE, PREDICT),
                setting,
                _steady(16.0, 40),
                _THRICE,
                columns=(ERRORS, TTFT, TTFT_P99, E2E, SLO),
            )
        )
    return scenarios


def _overload() -> list[Scenario]:
    """One for each admission and load; `overload` puts them together."""
    kinds, caps = (A100, RTX4090, RTX4090), (58, 29, 29)
    short = QueueOptions(size=16, timeout_s=1.0)
    forms = {
        "none: everything goes to the engines": (PREDICT, Setting(kinds)),
        "caps, no bound on the queue, 10 s": (PREDICT_EAGER, Setting(kinds, caps, queue=QueueOptions(10**9, 10.0))),
        "caps, queue of 16, 1 s": (PREDICT_EAGER, Setting(kinds, caps, queue=short)),
        "caps, queue of 16, 1 s, late binding": (PREDICT, Setting(kinds, caps, queue=short)),
        "caps and queue as they are by default": (PREDICT, Setting(kinds, caps, queue=QueueOptions())),
    }
    return [
        Scenario(
            f"F x{load:g}",
            form,
            (contender,),
            setting,
            _steady(18.0 * load, 74),
            (103,),
            5000,
            (GOODPUT, TTFT_P99, REFUSED),
            2.0,
        )
        for form, (contender, setting) in forms.items()
        for load in LOADS
    ]


LOADS = (0.8, 1.0, 2.0, 4.0)
OVERLOAD = tuple(_overload())
SCENARIOS: tuple[Scenario, ...] = (
    *_seed_cluster(),
    Scenario(
        "A-cap",
        "A-cap. The same as A80 with caps at the batch slots",
        _CAPPED,
        Setting(_THREE, caps=_slots(_THREE)),
        _steady(12.8),
        _THRICE,
    ),
    *_large_cluster(),
    Scenario(
        "C",
        "C. 6 A100, chats with one of 80 system prompts, 90 requests/s",
        _PREFIX,
        Setting((A100,) * 6),
        _chats,
        _TWICE,
        6000,
        (TTFT, TTFT_P50, TTFT_P99, E2E, E2E_P99, SLO, HITS),
    ),
    Scenario(
        "D",
        "D. 2 A100 and 3 4090, 20 requests/s; one A100 is 8 times slower from 60 s to 120 s",
        _BASE,
        Setting(_FIVE, troubles=(Trouble(60.0, 120.0, 0, 8.0),)),
        _steady(20.0, 30),
        _THRICE,
        columns=(TTFT, TTFT_P99, E2E, E2E_P99, SLO, SPEED),
    ),
    *_black_hole(),
)


def figures(scenario: Scenario, contender: Contender, seed: int, number: int) -> Figures:
    """Run it once."""
    fleet = Fleet(scenario.setting, contender, seed)
    answers = fleet.run(scenario.arrivals(number, seed))
    last_s = answers[-1].request.at_s
    if scenario in OVERLOAD:
        good = sum(_is_good(answer, scenario.slo_ttft_s) for answer in answers)
        ttfts = sorted(_ttft_s(answer) for answer in answers if answer.done_s is not None)
        refused = sum(answer.is_refused for answer in answers)
        return {
            "goodput": good / last_s,
            "ttft_p99_ms": 1000 * _quantile(ttfts, 0.99),
            "refused": 100 * refused / len(answers),
        }
    counted = answers[int(len(answers) * _WARM_UP) :]
    whole = [answer for answer in counted if answer.done_s is not None]
    ttfts = sorted(map(_ttft_s, whole))
    times = sorted(map(_e2e_s, whole))
    slowest = max(range(len(fleet.engines)), key=lambda place: fleet.engines[place].kind.step_s)
    in_time = sum(answer.request.output for answer in whole if _end_s(answer) <= last_s)
    return {
        "ttft_ms": 1000 * fmean(ttfts),
        "ttft_p50_ms": 1000 * _quantile(ttfts, 0.5),
        "ttft_p99_ms": 1000 * _quantile(ttfts, 0.99),
        "e2e_s": fmean(times),
        "e2e_p99_s": _quantile(times, 0.99),
        "slo": 100 * sum(_is_good(answer, scenario.slo_ttft_s) for answer in counted) / len(counted),
        "tokens_per_s": in_time / (last_s - counted[0].request.at_s),
        "slowest": 100 * sum(answer.place == slowest for answer in counted) / len(counted),
        "errors": 100 * sum(answer.is_failed or answer.is_refused for answer in counted) / len(counted),
        "hits": 100 * sum(engine.cached for engine in fleet.engines) / sum(engine.prompted for engine in fleet.engines),
    }


def _ttft_s(answer: Answer) -> float:
    assert answer.first_s is not None
    return answer.first_s - answer.request.at_s


def _end_s(answer: Answer) -> float:
    assert answer.done_s is not None
    return answer.done_s


def _e2e_s(answer: Answer) -> float:
    return _end_s(answer) - answer.request.at_s


def _is_good(answer: Answer, ttft_s: float) -> bool:
    """In time for its first token, and at most 60 ms for each further one."""
    if answer.done_s is None or answer.first_s is None:
        return False
    tpot_s = (answer.done_s - answer.first_s) / max(1, answer.request.output - 1)
    return answer.first_s - answer.request.at_s <= ttft_s and tpot_s <= 0.06


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest values."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def row(title: str, columns: Sequence[Column], runs: Sequence[Figures]) -> str:
    """One line of a table: means over the seeds, with their spread where it matters."""
    cells = [title]
    for column in columns:
        values = [run[column.name] for run in runs]
        spread = f" ±{pstdev(values):.{column.digits}f}" if column.shows_spread and len(values) > 1 else ""
        cells.append(f"{fmean(values):.{column.digits}f}{spread}")
    return "| " + " | ".join(cells) + " |"


def head(columns: Sequence[str]) -> str:
    """The lines above the rows."""
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)


def overload(results: Mapping[Scenario, Figures]) -> str:
    """The table of all forms of admission, from the figures at each load."""
    loads = [f"{load:g}x" for load in LOADS]
    lines = [
        "\n## F. A100 and 2 4090 beyond what they can do; good answers per second (TTFT <= 2 s, TPOT <= 60 ms)\n",
        head(["admission", *loads, "last / peak", "TTFT p99 ms at the last", "refused % at the last"]),
    ]
    for title in dict.fromkeys(scenario.title for scenario in results):
        its = [figures for scenario, figures in results.items() if scenario.title == title]
        good = [each["goodput"] for each in its]
        last = its[-1]
        cells = [title, *(f"{each:.1f}" for each in good), f"{100 * good[-1] / max(good):.0f} %"]
        cells += [f"{last['ttft_p99_ms']:.0f}", f"{last['refused']:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
