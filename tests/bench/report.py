"""Turns results/raw.jsonl into RESULTS.md: medians over the rounds, then results/notes.md as it is.

BENCH_PEERS_DIR=... python3 report.py
"""

import json
import platform
import statistics
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
import peers as registry  # noqa: E402

SKIP = {"peer", "workload", "round", "problems", "tries"}


def load(path: Path) -> dict[tuple[str, str], dict]:
    """(peer, workload) -> the median of each number, the sum of the kinds of problems, and the spread of the CPU."""
    runs = defaultdict(list)
    for line in path.read_text().splitlines():
        r = json.loads(line)
        runs[r["peer"], r["workload"]].append(r)
    out = {}
    for key, rs in runs.items():
        m = {"runs": len(rs)}
        for field in {f for r in rs for f in r} - SKIP:
            values = [r[field] for r in rs if isinstance(r.get(field), (int, float))]
            if values:
                m[field] = statistics.median(values)
        cpu = [r["cpu_ms_per_request"] for r in rs if "cpu_ms_per_request" in r]
        if cpu and min(cpu):
            m["spread"] = f"{min(cpu):.3g}–{max(cpu):.3g}"
        m["errors_max"] = max((r.get("errors", 0) for r in rs), default=0)
        problems = defaultdict(int)
        for r in rs:
            for k, v in (r.get("problems") or {}).items():
                problems[k] += v
        m["problems"] = dict(problems)
        m["error"] = next((r["error"] for r in rs if "error" in r), "")
        m["last_errors"] = [r.get("last_error_s") for r in rs]
        out[key] = m
    return out


def num(v, digits=3) -> str:
    if v is None:
        return "–"
    if v == 0:
        return "0"
    if abs(v) >= 1000:
        return f"{v:,.0f}".replace(",", " ")
    return f"{v:.{digits}g}" if abs(v) < 100 else f"{v:.0f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    out = ["| " + " | ".join(head) + " |", "|" + "|".join([" --- "] + [" ---: "] * (len(head) - 1)) + "|"]
    return "\n".join(out + ["| " + " | ".join(r) + " |" for r in rows]) + "\n"


def main():
    data = load(HERE / "results" / "raw.jsonl")
    names = [n for n in registry.PEERS if any(p == n for p, _ in data)]
    versions = registry.versions()
    get = lambda p, w, f: data.get((p, w), {}).get(f)  # noqa: E731

    def over_direct(p, w, f):
        v, d = get(p, w, f), get("direct", w, f)
        return None if v is None or d is None or p == "direct" else max(0.0, v - d)

    doc = [
        "# Gateways side by side\n",
        f"{min(m['runs'] for m in data.values())} to {max(m['runs'] for m in data.values())} rounds; "
        "the median of each number. "
        f"{platform.machine()}, {cpu_model()}, Linux {platform.release().split('-')[0]}; the gateway alone on one CPU, "
        "load generator and both fake upstreams on another. How to run it again: README.md. "
        "The raw measurements: results/raw.jsonl.\n",
        "CPU is the time of the gateway's whole process tree, user and system, per request (W1, W4) or per stream of "
        "64 events (W2, W3). It is the figure to compare; requests per second and latencies suffer from whatever "
        "else the machine does.\n",
        "## Overview\n",
        table(
            [
                "peer",
                "W1 c=16 CPU ms",
                "W1 c=16 rps",
                "added p50 ms (c=1)",
                "W2 CPU ms/stream",
                "W3 CPU ms/stream",
                "W3 added TTFT p50/p99 ms",
                "W4 256 KB CPU ms",
                "W5 errors of 480",
                "RSS idle/peak MB",
                "start s",
            ],  # fmt: skip
            [
                [
                    p,
                    num(get(p, "W1c16", "cpu_ms_per_request")) if p != "direct" else "–",
                    num(get(p, "W1c16", "rps")),
                    num(over_direct(p, "W1c1", "p50_ms")),
                    num(get(p, "W2", "cpu_ms_per_request")) if p != "direct" else "–",
                    num(get(p, "W3", "cpu_ms_per_request")) if p != "direct" else "–",
                    f"{num(over_direct(p, 'W3', 'ttft_p50_ms'))} / {num(over_direct(p, 'W3', 'ttft_p99_ms'))}",
                    num(get(p, "W4", "cpu_ms_per_request")) if p != "direct" else "–",
                    num(get(p, "W5", "errors")) if (p, "W5") in data else "–",
                    f"{num(get(p, 'start', 'rss_idle_mb'))} / {num(peak(data, p))}" if p != "direct" else "–",
                    num(get(p, "start", "startup_s")),
                ]
                for p in names
            ],
        ),
    ]
    for w, title in (
        ("W1c1", "W1: 1 KB chat, 1 KB reply, not streamed, concurrency 1"),
        ("W1c16", "W1: the same at concurrency 16"),
        ("W1c64", "W1: the same at concurrency 64"),
        ("W4", "W4: 256 KB prompt, not streamed, concurrency 8"),
    ):
        doc += [
            f"## {title}\n",
            table(
                [
                    "peer",
                    "rps",
                    "p50 ms",
                    "p95 ms",
                    "p99 ms",
                    "CPU ms/request",
                    "CPU min–max",
                    "errors",
                    "gateway CPU %",
                    "load CPU %",
                    "others on gateway CPU %",
                ],  # fmt: skip
                [
                    [
                        p,
                        *[num(get(p, w, f)) for f in ("rps", "p50_ms", "p95_ms", "p99_ms")],
                        num(get(p, w, "cpu_ms_per_request")) if p != "direct" else "–",
                        get(p, w, "spread") or "–",
                        num(get(p, w, "errors_max")),
                        num(get(p, w, "gateway_cpu_pct")) if p != "direct" else "–",
                        num(get(p, w, "load_cpu_pct")),
                        num(get(p, w, "other_cpu_pct")) if p != "direct" else "–",
                    ]
                    for p in names
                    if (p, w) in data
                ],
            ),
        ]
    for w, title in (
        ("W2", "W2: streams of 64 events without delay, concurrency 16"),
        ("W3", "W3: streams of 64 events 20 ms apart (the first after 20 ms), concurrency 200"),
    ):
        doc += [
            f"## {title}\n",
            table(
                [
                    "peer",
                    "streams/s",
                    "events/s",
                    "TTFT p50 ms",
                    "TTFT p99 ms",
                    "event delivery p50 ms",
                    "event delivery p99 ms",
                    "CPU ms/stream",
                    "CPU min–max",
                    "bad streams",
                    "gateway CPU %",
                    "load CPU %",
                    "others on gateway CPU %",
                ],  # fmt: skip
                [
                    [
                        p,
                        *[num(get(p, w, f)) for f in ("rps", "events_per_s", "ttft_p50_ms", "ttft_p99_ms")],
                        *[num(get(p, w, f)) for f in ("delivery_p50_ms", "delivery_p99_ms")],
                        num(get(p, w, "cpu_ms_per_request")) if p != "direct" else "–",
                        get(p, w, "spread") or "–",
                        num(get(p, w, "errors_max")),
                        num(get(p, w, "gateway_cpu_pct")) if p != "direct" else "–",
                        num(get(p, w, "load_cpu_pct")),
                        num(get(p, w, "other_cpu_pct")) if p != "direct" else "–",
                    ]
                    for p in names
                    if (p, w) in data
                ],
            ),
        ]
    doc += [
        "## W5: 40 requests/s of 250 ms each for 12 s (10 in flight); one of two upstreams dies at 3 s and is back at 7 s\n",
        table(
            [
                "peer",
                "client-visible errors (median)",
                "most",
                "last error at s (each round)",
                "slowest success ms",
                "requests to the restored upstream",
                "kinds (all rounds)",
            ],  # fmt: skip
            [
                [
                    p,
                    num(get(p, "W5", "errors")),
                    num(get(p, "W5", "errors_max")),
                    ", ".join("none" if x is None else f"{x:g}" for x in get(p, "W5", "last_errors")),
                    num(get(p, "W5", "max_ms")),
                    num(get(p, "W5", "requests_on_restored")),
                    "; ".join(f"{k}: {v}" for k, v in get(p, "W5", "problems").items()) or "–",
                ]
                for p in names
                if (p, "W5") in data
            ],
        ),
        "## Footprint\n",
        table(
            [
                "peer",
                "RSS idle MB",
                "RSS peak MB",
                "start to first answer s",
                "CPU s 3 s after it",
                "processes",
                "idle CPU %",
                "version",
            ],  # fmt: skip
            [
                [
                    p,
                    num(get(p, "start", "rss_idle_mb")),
                    num(peak(data, p)),
                    num(get(p, "start", "startup_s")),
                    num(get(p, "start", "startup_cpu_s")),
                    num(get(p, "start", "processes")),
                    num(get(p, "start", "idle_cpu_pct")),
                    versions.get(p) or registry.PEERS[p].note,
                ]
                for p in names
                if p != "direct"
            ],
        ),
    ]
    failed = [(p, m["error"], m["runs"]) for (p, w), m in data.items() if w == "failed"]
    if failed:
        doc += ["## Failed starts or runs\n", *[f"- {p}: {e} ({n} rounds)\n" for p, e, n in failed]]
    limits = HERE / "results" / "limits.jsonl"
    if limits.exists():
        rows = [json.loads(x) for x in limits.read_text().splitlines()]
        doc += [
            "## The fake upstream alone\n\nOn a CPU of its own, the load generator on the other:\n",
            table(
                ["load", "requests/s", "events/s", "upstream CPU µs/request", "upstream CPU µs/event"],
                [
                    [
                        " ".join(r["load"]),
                        num(r["rps"]),
                        num(r.get("events_per_s")),
                        num(r["upstream_cpu_us_per_request"]),
                        num(r.get("upstream_cpu_us_per_event")),
                    ]  # fmt: skip
                    for r in rows
                ],
            ),
        ]
    notes = HERE / "results" / "notes.md"
    if notes.exists():
        doc.append(notes.read_text())
    (HERE / "RESULTS.md").write_text("\n".join(doc))
    print(HERE / "RESULTS.md")


def peak(data, p):
    return max((m.get("rss_peak_mb", 0) for (q, _), m in data.items() if q == p), default=None)


def cpu_model() -> str:
    line = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), ":?")
    return line.split(":")[1].strip()


if __name__ == "__main__":
    main()
