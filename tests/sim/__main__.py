"""`make sim`: what each policy does to simulated engines, as tables.

  python -m tests.sim [quick] [NAME ...]

All tables, or those whose names begin with one of the given ones. `quick` takes one seed and fewer requests, which is
enough for the order of the policies but not for their figures. Every policy meets the same requests; the same command
prints the same figures. It is evidence of order and of how things fail, not of milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence

from tests.sim.tables import OVERLOAD, SCENARIOS, Figures, Scenario, figures, head, overload, row

Run = tuple[int, int, int, int]  # which scenario, which contender, the seed, how many requests
_ALL = (*SCENARIOS, *OVERLOAD)


def quick_number(scenario: Scenario) -> int:
    """How many requests the quick form takes."""
    return scenario.number * 3 // 8


def _runs(scenario: Scenario, is_quick: bool) -> list[Run]:
    seeds, number = scenario.seeds, scenario.number
    if is_quick:
        seeds, number = seeds[:1], quick_number(scenario)
    place = _ALL.index(scenario)
    return [(place, at, seed, number) for at in range(len(scenario.contenders)) for seed in seeds]


def _figures(run: Run) -> Figures:
    place, at, seed, number = run
    scenario = _ALL[place]
    return figures(scenario, scenario.contenders[at], seed, number)


def _print_table(scenario: Scenario, results: Sequence[Figures]) -> None:
    print(f"\n## {scenario.title}\n")
    print(head(["policy", *(column.title for column in scenario.columns)]))
    seeds = len(results) // len(scenario.contenders)
    for at, contender in enumerate(scenario.contenders):
        print(row(contender.title, scenario.columns, results[at * seeds : (at + 1) * seeds]), flush=True)


def main(words: Sequence[str]) -> None:
    began = time.monotonic()
    is_quick = "quick" in words
    names = tuple(word for word in words if word != "quick")
    chosen = [each for each in _ALL if not names or each.name.startswith(names)]
    if not chosen:
        sys.exit(f"no such table; there are {', '.join(dict.fromkeys(each.name.split()[0] for each in _ALL))}")
    planned = [(scenario, _runs(scenario, is_quick)) for scenario in chosen]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        results: Iterator[Figures] = pool.imap(_figures, [run for _, runs in planned for run in runs])
        overloads: dict[Scenario, Figures] = {}
        for scenario, runs in planned:
            its = [next(results) for _ in runs]
            if scenario in OVERLOAD:
                overloads[scenario] = its[0]
            else:
                _print_table(scenario, its)
    if overloads:
        print(overload(overloads))
    print(f"\n{sum(len(runs) for _, runs in planned)} runs in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
