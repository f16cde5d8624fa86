"""The gateways under test: how each is installed, started and asked.

  peers.py install [NAME ...]     install into $BENCH_PEERS_DIR (never into the repository)
  peers.py versions               print what is installed, as JSON
  peers.py list

Every peer is started the same way: two upstreams, round robin (or the peer's nearest equivalent),
logs at warning level, no auth, no database, no cache, one process, on the CPU that the runner pins it to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


def root() -> Path:
    d = os.environ.get("BENCH_PEERS_DIR")
    if not d:
        sys.exit("set BENCH_PEERS_DIR to a folder outside the repository: the peers are installed there")
    return Path(d).resolve()


@dataclass
class Setup:
    """What a peer is started with."""

    port: int
    metrics_port: int
    ups: list[str]
    state: Path  # an empty folder for this start


@dataclass
class Peer:
    name: str
    argv: Callable[[Setup], list[str]]
    pip: list[str] = field(default_factory=list)
    python: str = "python3.11"
    install: Callable[[], None] | None = None
    env: Callable[[Setup], dict[str, str]] = lambda s: {}
    headers: Callable[[Setup], list[str]] = lambda s: []
    version_of: str = ""  # the distribution that is measured
    note: str = ""
    venv_name: str = ""

    @property
    def venv(self) -> Path:
        return root() / f"venv-{self.venv_name or self.name}"

    def bin(self, exe: str) -> str:
        return str(self.venv / "bin" / exe)


def template(src: str, s: Setup) -> str:
    text = (HERE / src).read_text()
    for k, v in {
        "STATE": str(s.state),
        "PORT": str(s.port),
        "UP1": s.ups[0],
        "UP2": s.ups[1],
        "UP1_HOSTPORT": s.ups[0].removeprefix("http://"),
        "UP2_HOSTPORT": s.ups[1].removeprefix("http://"),
    }.items():
        text = text.replace(f"@{k}@", v)
    out = s.state / src
    out.write_text(text)
    return str(out)


def checkout(env: str, name: str) -> Path:
    """A clone of the repository that the variable `env` names (a path or an address)."""
    to = root() / name
    if not to.exists():
        src = os.environ.get(env)
        if not src:
            sys.exit(f"set {env} to the git repository of {name}")
        subprocess.run(["git", "clone", "-q", "--depth", "1", src, str(to)], check=True)
    return to


PEERS: dict[str, Peer] = {}


def add(p: Peer):
    PEERS[p.name] = p


add(Peer("direct", argv=lambda s: [], note="no gateway: the load generator asks the upstreams"))

add(
    Peer(
        "nginx",
        argv=lambda s: ["nginx", "-p", str(s.state), "-c", template("nginx.conf", s)],
        note="Debian's nginx as a plain reverse proxy, the physical limit",
    )
)


# This gateway, with all that it does for a call: key, policy, metrics, log and the record in Postgres. bench/igw.py starts
# the stores and makes the configuration, whose place it leaves in the environment.
add(
    Peer(
        "igw",
        argv=lambda s: [sys.executable, str(HERE.parents[2] / "manage.py"), "serve"],
        env=lambda s: {"IGW_PORT": str(s.port)},
        headers=lambda s: [f"Authorization: Bearer {os.environ['IGW_BENCH_KEY']}"],
        note="with keys, metrics, call log and the record of every call in Postgres",
    )
)


def rust_router(s: Setup, warn: str = "warn") -> list[str]:
    """smg, sglang-router and vllm-router are of one family, and so are their options."""
    return [
        *["--host", "127.0.0.1", "--port", str(s.port), "--worker-urls", *s.ups, "--policy", "round_robin"],
        *["--log-level", warn, "--prometheus-host", "127.0.0.1", "--prometheus-port", str(s.metrics_port)],
    ]


add(
    Peer(
        "smg",
        pip=["smg==1.13.0"],
        version_of="smg",
        argv=lambda s: [PEERS["smg"].bin("smg"), "launch", *rust_router(s)],
    )
)
add(
    Peer(
        "sglang-router",
        pip=["sglang-router==0.3.2"],
        version_of="sglang-router",
        argv=lambda s: [PEERS["sglang-router"].bin("python"), "-m", "sglang_router.launch_router", *rust_router(s)],
    )
)
add(
    Peer(
        "vllm-router",
        pip=["vllm-router==0.1.17"],
        version_of="vllm-router",
        argv=lambda s: [PEERS["vllm-router"].bin("vllm-router"), *rust_router(s, "warning")],
    )
)
add(
    Peer(
        "litellm",
        # The newest release whose [proxy] extra resolved (1.109.3 and 1.110.2 need packages that the index lacks).
        pip=["litellm[proxy]==1.108.7"],
        version_of="litellm",
        argv=lambda s: [
            *[PEERS["litellm"].bin("litellm"), "--config", template("litellm.yaml", s)],
            *["--host", "127.0.0.1", "--port", str(s.port), "--num_workers", "1"],
        ],
        env=lambda s: {
            "LITELLM_LOG": "ERROR",
            "LITELLM_MODE": "PRODUCTION",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_TELEMETRY": "False",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # no auth, as for the others
            "DISABLE_ADMIN_UI": "True",
            "NO_DOCS": "True",
        },
    )
)


def portkey_install():
    d = root() / "npm-portkey"
    d.mkdir(parents=True, exist_ok=True)
    # With the @hono/node-server that npm resolves by itself (1.14 and later) every stream of this release
    # answers 500 ("TypeError: immutable"); 1.13.8 is the newest with which streaming works.
    (d / "package.json").write_text('{"private": true, "overrides": {"@hono/node-server": "1.13.8"}}\n')
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "@portkey-ai/gateway@1.15.2"], cwd=d, check=True)


def portkey(name: str, targets: Callable[[list[str]], list[dict]], note: str):
    add(
        Peer(
            name,
            install=portkey_install,
            argv=lambda s: [
                *["node", str(root() / "npm-portkey/node_modules/@portkey-ai/gateway/build/start-server.js")],
                *["--headless", f"--port={s.port}"],
            ],
            env=lambda s: {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"},
            headers=lambda s: [
                "x-portkey-config: "
                + json.dumps({"strategy": {"mode": "loadbalance"}, "targets": targets(s.ups)}, separators=(",", ":"))
            ],
            note=note,
        )
    )


def portkey_target(up: str) -> dict:
    return {"provider": "openai", "custom_host": f"{up}/v1", "api_key": "sk-fake"}


portkey("portkey", lambda ups: [portkey_target(u) for u in ups], "load balancing, no failover")
portkey(
    "portkey-fallback",
    lambda ups: [
        {"strategy": {"mode": "fallback"}, "targets": [portkey_target(u) for u in order]} for order in (ups, ups[::-1])
    ],
    "load balancing over two fallback chains, for W5",
)


def omni_install():
    """The router of the PyPI wheel needs none of the wheel's model-serving requirements.

    sniffio, uvloop and httptools are given because a full install has them or may have them (sniffio by way of
    openai): without sniffio, httpx fails an import on every request, which costs a sixth of the CPU.
    """
    p = PEERS["sglang-omni-router"]
    make_venv(p, ["fastapi", "uvicorn[standard]", "httpx", "sniffio", "pydantic", "websockets", "typing-extensions"])
    subprocess.run([p.bin("pip"), "install", "-q", "--no-deps", "sglang-omni==0.1.9"], check=True)


add(
    Peer(
        "sglang-omni-router",
        install=omni_install,
        version_of="sglang-omni",
        argv=lambda s: [
            *[PEERS["sglang-omni-router"].bin("python"), "-m", "sglang_omni_router.python.serve"],
            *["--host", "127.0.0.1", "--port", str(s.port), "--worker-urls", *s.ups, "--model", "fake"],
            *["--policy", "round_robin", "--log-level", "warning", "--router-state-dir", str(s.state)],
            *["--max-connections", "1024"],
        ],
    )
)


def miles_install():
    make_venv(PEERS["miles-router"], ["fastapi", "uvicorn[standard]", "httpx", "sniffio", "setproctitle"])
    checkout("MILES_REPO", "miles")


add(
    Peer(
        "miles-router",
        install=miles_install,
        argv=lambda s: [
            *[PEERS["miles-router"].bin("python"), str(HERE / "miles_launch.py"), str(root() / "miles")],
            *["--port", str(s.port), "--worker", s.ups[0], "--worker", s.ups[1]],
        ],
        note="does not stream: it buffers every answer",
    )
)

for mode, note in (
    ("raw", "a floor, no gateway: uvloop and httptools on both sides, bytes passed through"),
    ("asgi", "a floor, no gateway: uvicorn, a bare ASGI app, aiohttp"),
    ("django", "a floor, no gateway: uvicorn, Django's ASGI handler and one async view, aiohttp"),
    ("channels", "a floor, no gateway: uvicorn, Channels' router and one AsyncHttpConsumer, aiohttp"),
):
    add(
        Peer(
            f"ref-{mode}",
            venv_name="reference",
            pip=["uvicorn[standard]", "aiohttp", "Django", "channels"],
            version_of={"raw": "httptools", "asgi": "uvicorn", "django": "Django", "channels": "channels"}[mode],
            argv=lambda s, mode=mode: [
                *[str(root() / "venv-reference/bin/python"), str(HERE / "reference.py"), mode, str(s.port), *s.ups],
            ],
            note=note,
        )
    )


# ---- installing ---------------------------------------------------------------------------------


def make_venv(p: Peer, packages: list[str]):
    if not p.venv.exists():
        subprocess.run([p.python, "-m", "venv", str(p.venv)], check=True)
    subprocess.run([p.bin("pip"), "install", "-q", "--disable-pip-version-check", *packages], check=True)


def install(names: list[str]):
    root().mkdir(parents=True, exist_ok=True)
    for p in PEERS.values():
        if names and p.name not in names:
            continue
        print("install", p.name, flush=True)
        if p.install:
            p.install()
        elif p.pip:
            make_venv(p, p.pip)


def versions() -> dict[str, str]:
    out = {}
    for p in PEERS.values():
        v = ""
        if p.version_of and p.venv.exists():
            code = (
                "import importlib.metadata as m, sys; n = sys.argv[1]; v = lambda x: m.version(x)\n"
                "extra = [f'{x} {v(x)}' for x in ('uvicorn','fastapi','django','httpx','aiohttp','uvloop') if x != n.lower() "
                "and any((d.metadata['Name'] or '').lower() == x for d in m.distributions())]\n"
                "print(n, v(n), '(' + ', '.join(extra) + ')' if extra and 'router' not in sys.argv[2] else '')"
            )
            native = "router" if p.name in ("sglang-router", "vllm-router") else ""
            v = subprocess.run(
                [p.bin("python"), "-c", code, p.version_of, native], capture_output=True, text=True
            ).stdout.strip()
        elif p.name == "nginx":
            v = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip().split(": ")[-1]
        elif p.name.startswith("portkey"):
            f = root() / "npm-portkey/node_modules/@portkey-ai/gateway/package.json"
            node = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
            v = f"@portkey-ai/gateway {json.loads(f.read_text())['version']} (node {node})" if f.exists() else ""
        elif p.name == "miles-router" and (root() / "miles").exists():
            v = (
                "commit "
                + subprocess.run(
                    ["git", "-C", str(root() / "miles"), "log", "-1", "--format=%h of %cs"],
                    capture_output=True,
                    text=True,
                ).stdout.strip()
            )
        out[p.name] = v
    return out


if __name__ == "__main__":
    verb, *rest = sys.argv[1:] or ["list"]
    if verb == "install":
        install(rest)
    elif verb == "versions":
        print(json.dumps(versions(), indent=1))
    else:
        print("\n".join(PEERS))
