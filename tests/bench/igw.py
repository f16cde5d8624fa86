"""`make bench`: this gateway beside its peers, on one machine, in one run.

  igw.py [--peers igw,smg,ref-raw,ref-asgi,nginx] [--workloads W1c16,W2,W3] [--rounds 3] [--out FILE]

Starts Postgres and Valkey of its own on the load generator's CPU, makes a configuration with the two fake upstreams and
a key, installs the peers that are missing into $BENCH_PEERS_DIR (default: .bench), runs run.py and prints the medians
with the ratio to each peer. Needs `wrk` and, for the peers named so, `nginx` from the system, and a C compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from gateway.launch.embedded import Postgres, Valkey  # noqa: E402
from gateway.runtime.lineage import die_with_parent  # noqa: E402

_PORT_BASE = 29000
_CONFIGURATION = f"""
version: 1
teams:
  - name: bench
    keys: [{{name: load, key: "env:IGW_BENCH_KEY", models: ["*"]}}]
pools:
  - model: fake
    policy: round_robin
    health: {{path: /health}}
    workers:
      - {{name: u1, url: "http://127.0.0.1:{_PORT_BASE + 1}"}}
      - {{name: u2, url: "http://127.0.0.1:{_PORT_BASE + 2}"}}
"""


@contextlib.contextmanager
def stores(state: Path, load_cpu: int) -> Iterator[dict[str, str]]:
    """Both engines, running; the environment that names them."""
    children = []
    try:
        urls = {}
        for name, store in (("DATABASE_URL", Postgres(state)), ("REDIS_URL", Valkey(state))):
            store.prepare()
            child = subprocess.Popen(
                ["taskset", "-c", str(load_cpu), *store.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=die_with_parent(store.stop_signal),
                **store.options,
            )
            children.append((store, child))
            store.wait(lambda child=child: child.poll() is None)
            urls[name] = store.url
        yield urls
    finally:
        for store, child in reversed(children):
            child.send_signal(store.stop_signal)
            child.wait(20)


def medians(path: Path) -> dict[str, dict[str, float]]:
    """workload -> peer -> CPU ms a request."""
    found: dict[str, dict[str, list[float]]] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "cpu_ms_per_request" in record:
            found.setdefault(record["workload"], {}).setdefault(record["peer"], []).append(record["cpu_ms_per_request"])
        elif record["workload"] == "failed":
            print("failed:", record["peer"], record["error"])
    return {load: {peer: statistics.median(v) for peer, v in peers.items()} for load, peers in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="igw,smg,ref-raw,ref-asgi,nginx")
    parser.add_argument("--workloads", default="W1c16,W2,W3")
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--load-cpu", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    peers = Path(os.environ.setdefault("BENCH_PEERS_DIR", str(ROOT / ".bench")))
    wanted = [name for name in options.peers.split(",") if name not in {"igw", "nginx", "direct"}]
    missing = [
        name for name in wanted if not (peers / f"venv-{'reference' if name.startswith('ref-') else name}").exists()
    ]
    if missing:
        subprocess.run([sys.executable, str(HERE / "peers" / "peers.py"), "install", *missing], check=True)
    state = Path(tempfile.mkdtemp(prefix="igw-bench-"))
    state.chmod(0o711)
    out = options.out or state / "raw.jsonl"
    try:
        with stores(state, options.load_cpu) as urls:
            own = {
                "IGW_STATE_DIR": str(state),
                "IGW_SECRET_KEYS": secrets.token_urlsafe(32),
                "IGW_BENCH_KEY": f"sk-bench-{secrets.token_urlsafe(32)}",
                "IGW_LOG_LEVEL": "info",
            }
            os.environ.update(urls, **own)
            manage = [sys.executable, str(ROOT / "manage.py")]
            subprocess.run([*manage, "migrate", "--noinput", "-v0"], check=True)
            (state / "bench.yaml").write_text(_CONFIGURATION)
            subprocess.run([*manage, "apply", str(state / "bench.yaml")], check=True)
            command = [sys.executable, str(HERE / "run.py"), "--peers", options.peers, "--workloads", options.workloads]
            command += ["--rounds", options.rounds, "--out", str(out), "--load-cpu", str(options.load_cpu)]
            subprocess.run([*command, "--gateway-cpu", str(1 - options.load_cpu)], check=True)
        report(medians(out))
    finally:
        shutil.rmtree(state, ignore_errors=True)


def report(table: dict[str, dict[str, float]]) -> None:
    """CPU of the gateway's processes for one call, and this gateway's share of each peer's."""
    for load, peers in table.items():
        print(f"\n{load}: CPU ms a call (medians)")
        own = peers.get("igw")
        for peer, cost in sorted(peers.items(), key=lambda item: item[1]):
            ratio = f"   igw / {peer} = {own / cost:.2f}" if own and peer != "igw" else ""
            print(f"  {peer:<12} {cost:8.4f}{ratio}")


if __name__ == "__main__":
    main()
