"""The gateway as its operators run it: `manage.py serve` with its processes, Celery beside it, a database of its own.

Stores are those of the test run; everything else is a real process, started here and stopped here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg

from gateway.launch.process import free_port
from gateway.runtime.lineage import die_with_parent

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"


def ask(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


def until(condition: Callable[[], object], within_s: float = 10.0) -> float:
    """Seconds until the condition came true."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < within_s, "the condition did not come true in time"
        time.sleep(0.01)
    return time.monotonic() - start


class Stack:
    """`url` is the data port's. `restart` starts the gateway anew with other variables."""

    def __init__(self, state: Path, name: str, redis_url: str) -> None:
        self.state = state
        self.port = free_port()
        self.url = self.control_url = f"http://127.0.0.1:{self.port}"
        self.database_url = _new_database(os.environ["DATABASE_URL"], name)
        self.env = {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "REDIS_URL": redis_url,
            "IGW_STATE_DIR": str(state),
            "IGW_PORT": str(self.port),
            "IGW_PROCESSES": "2",
            "DJANGO_SETTINGS_MODULE": "gateway.settings",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.manage("migrate", "--noinput", "-v0")
        arguments = ("--team", "journeys", "--name", "operator", "--operator")
        self.operator = self.manage("create_key", *arguments).splitlines()[-1]

    def manage(self, *arguments: str, **env: str) -> str:
        """A command's output; it has to succeed."""
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env={**self.env, **env}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def api(self, method: str, path: str, body: object = None) -> httpx.Response:
        """The control API, as an operator."""
        headers = {"authorization": f"Bearer {self.operator}"}
        return httpx.request(method, f"{self.control_url}/api/v1{path}", json=body, headers=headers, timeout=30)

    def new_key(self, name: str, **fields: object) -> str:
        """The text of a new key of the team `journeys`."""
        answer = self.api("POST", "/keys", {"team": "journeys", "name": name, **fields})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["key"])

    def start(self, name: str, *command: str, **env: str) -> subprocess.Popen[bytes]:
        """A process of the stack, with its output in `<name>.log`."""
        with (self.state / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={**self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        return self._running[name]

    def serve(self, **env: str) -> None:
        """Start the gateway and wait until it answers."""
        self.start("gateway", "manage.py", "serve", **env)
        until(lambda: self.status("/live") == 200, 30)

    def celery(self) -> None:
        beat = str(self.state / "beat.db")
        options = ["-B", "--schedule", beat, "-Q", "probes,igw", "--pool", "threads", "-c", "2"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"]
        self.start("celery", "-m", "celery", "-A", "workers.app", "worker", *options, *quiet)

    def stop(self, name: str, sign: signal.Signals = signal.SIGTERM, within_s: float = 20) -> int:
        """End one process; its exit status."""
        process = self._running.pop(name)
        process.send_signal(sign)
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise

    def close(self) -> None:
        for name in list(self._running):
            with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
                self.stop(name)

    def status(self, path: str, key: str = "") -> int:
        """The status of a GET; 0 when nobody answers."""
        with contextlib.suppress(httpx.TransportError):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return httpx.get(self.url + path, headers=headers).status_code
        return 0

    def json(self, path: str) -> Any:
        return httpx.get(self.url + path).json()

    def children(self) -> list[int]:
        """The gateway's own processes, without their parent."""
        parent = self._running["gateway"].pid
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]

    def chat(self, key: str, body: dict[str, Any]) -> httpx.Response:
        """One call on a connection of its own, so that any process may get it."""
        return httpx.post(self.url + CHAT, json=body, headers={"authorization": f"Bearer {key}"}, timeout=30)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[arg-type]  # a test's own text

    def log(self, name: str) -> str:
        return (self.state / f"{name}.log").read_text()

    def calls(self) -> list[dict[str, Any]]:
        """The call lines of the gateway's log."""
        lines = [json.loads(line) for line in self.log("gateway").splitlines() if line.startswith("{")]
        return [line for line in lines if line["message"] == "call"]


@contextlib.contextmanager
def stack(state: Path, name: str, redis_url: str) -> Iterator[Stack]:
    made = Stack(state, name, redis_url)
    try:
        yield made
    finally:
        made.close()


def of_the_session(redis_db: int) -> str:
    """The URL of a database of the test run's own Valkey."""
    return urlunsplit(urlsplit(os.environ["REDIS_URL"])._replace(path=f"/{redis_db}"))


def _new_database(url: str, name: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
