"""What one decision of every policy costs: choose and taken, with 8 and with 64 workers, in microseconds.

  decisions.py [POLICY ...]

Prompts are 8 KB with a beginning that some share, keys differ, every worker reports its load, calls are in flight. The
figure is the median of the runs, each of which makes some hundred decisions.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gateway.policies.registry import POLICIES, PolicyEntry  # noqa: E402
from gateway.routing.breaker import Breaker  # noqa: E402
from gateway.routing.options import BreakerOptions  # noqa: E402
from gateway.routing.requirement import Facts, Need, Requirement  # noqa: E402
from gateway.routing.retry import Signal  # noqa: E402
from gateway.routing.snapshot import WorkerId, WorkerSpec  # noqa: E402
from gateway.routing.worker import LoadReport, Worker  # noqa: E402

_RUNS, _DECISIONS = 15, 200
_LIMITS_US = {8: 50.0, 64: 250.0}


def workers(count: int) -> list[Worker]:
    """Workers as they are in the middle of a busy hour."""
    chance, made = random.Random(5), []
    for at in range(count):
        spec = WorkerSpec(WorkerId(f"w{at}"), f"w{at}", f"http://w{at}:1", weight=chance.randint(1, 10))
        each = Worker(spec, Breaker(BreakerOptions()))
        each.in_flight = chance.randint(0, 20)
        each.report = LoadReport(0.0, 5, 1, chance.randint(0, 9000), 1500.0, chance.random())
        made.append(each)
    return made


def needs() -> list[Need]:
    """Calls whose facts are read already: what reading costs is not the policy's."""
    chance, made = random.Random(6), []
    for at in range(_DECISIONS):
        prompt = f"system {chance.randrange(20)} ".encode().ljust(4096, b"s") + f"user {at} ".encode().ljust(4096, b"u")
        facts = Facts(prompt=prompt, input_tokens=2048)
        call = Need(Requirement("chat", "m", is_streaming=True), lambda facts=facts: facts, routing_key=f"k{at}")
        assert call.facts is facts
        made.append(call)
    return made


def measure(entry: PolicyEntry, count: int) -> float:
    """Microseconds a decision, without what follows it."""
    policy, live, calls, now = entry.make(None), workers(count), needs(), 0.0
    policy.keep(live)
    took_us = []
    for _ in range(_RUNS):
        tracks = []
        began = time.perf_counter()
        for call in calls:
            now += 0.01
            chosen, _ = policy.choose(live, call, now)
            tracks.append(policy.taken(chosen, call, now))
        took_us.append((time.perf_counter() - began) / len(calls) * 1e6)
        for track in filter(None, tracks):
            track.answered(now + 0.1)
            track.ended(Signal.SUCCESS, 10, now + 0.2)
    return statistics.median(took_us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", metavar="POLICY", default=[*POLICIES])
    chosen = parser.parse_args().policies
    print(f"{'us a decision':<26}" + "".join(f"{f'{count} workers':>12}" for count in _LIMITS_US))
    print(f"{'limit':<26}" + "".join(f"{limit:>12.1f}" for limit in _LIMITS_US.values()))
    for name in chosen:
        print(f"{name:<26}" + "".join(f"{measure(POLICIES[name], count):>12.1f}" for count in _LIMITS_US), flush=True)


if __name__ == "__main__":
    main()
