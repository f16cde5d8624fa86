"""`manage.py up` as a person meets it: started, called, started twice, stopped, killed."""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.launch.process import free_port

ROOT = Path(__file__).parents[2]
START_S, STOP_S = 90.0, 30.0
MADE_HERE = {"DATABASE_URL", "REDIS_URL", "IGW_SECRET_KEYS", "DJANGO_SETTINGS_MODULE"}


@dataclass
class Run:
    """One `manage.py up` and what it has said so far."""

    state: Path
    port: int = field(default_factory=free_port)
    text: str = ""

    def __post_init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in MADE_HERE}
        environment |= {"IGW_STATE_DIR": str(self.state), "IGW_PORT": str(self.port), "IGW_GRACE_S": "5"}
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def until(self, text: str, timeout_s: float = START_S) -> None:
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while text not in self.text:
                assert selector.select(deadline - time.monotonic()), f"no {text!r} in time:\n{self.text}"
                piece = os.read(self.process.stdout.fileno(), 65536)
                assert piece, f"it ended without {text!r}:\n{self.text}"
                self.text += piece.decode()

    def end(self) -> int:
        """The exit code, with all that was said on the way."""
        self.text += self.process.communicate(timeout=STOP_S)[0].decode()
        return self.process.returncode


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """One for all tests of this file, in whose order only the first one pays for a first start."""
    directory = Path(tempfile.mkdtemp(prefix="igw-journey-"))
    directory.chmod(0o711)  # the account that Postgres runs as passes through
    yield directory
    for pid in processes_of(directory):  # none, unless a test failed
        os.kill(pid, signal.SIGKILL)
    until(lambda: not processes_of(directory))
    shutil.rmtree(directory)


@pytest.fixture
def start(state: Path) -> Iterator[Callable[[], Run]]:
    runs: list[Run] = []

    def start() -> Run:
        runs.append(Run(state))
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.process.wait()
        if run.process.stdout:
            run.process.stdout.close()


def processes_of(state: Path) -> list[int]:
    """All that was started for this state directory, known by the environment or the command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            known_by = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(state).encode() in known_by:
            found.append(int(entry.name))
    return found


def until(is_so: Callable[[], bool], timeout_s: float = STOP_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def printed_call(text: str) -> str:
    found = re.search(r"^ +curl .*?\}'$", text, re.M | re.S)
    assert found, text
    return found[0]


def test_up_first_start_prints_a_call_that_works_and_ctrl_c_stops_everything(
    state: Path, start: Callable[[], Run]
) -> None:
    run = start()
    run.until("Ctrl-C stops everything.")
    assert "IGW is ready after" in run.text
    answer = subprocess.run(["sh", "-c", printed_call(run.text)], stdout=subprocess.PIPE, check=True, timeout=10)
    assert 'You said: "Hello"' in json.loads(answer.stdout)["choices"][0]["message"]["content"]

    again = start()
    assert again.end() == 2
    assert again.text == f"igw: {state} is in use by another `manage.py up` (pid {run.process.pid}): stop it first\n"

    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0, run.text
    until(lambda: not processes_of(state), timeout_s=1)
    assert not (state / "stores.json").exists()


def test_up_killed_with_kill_9_leaves_no_process_and_starts_again(state: Path, start: Callable[[], Run]) -> None:
    run = start()
    run.until("Ctrl-C stops everything.")
    assert len(processes_of(state)) > 5
    run.process.kill()
    until(lambda: not processes_of(state), timeout_s=10)

    again = start()
    again.until("Ctrl-C stops everything.")
    assert "made at the first start" in again.text
    assert "sk-igw-" not in again.text
    again.process.send_signal(signal.SIGINT)
    assert again.end() == 0, again.text


def test_up_when_a_child_ends_names_it_and_stops_the_rest(state: Path, start: Callable[[], Run]) -> None:
    run = start()
    run.until("Ctrl-C stops everything.")
    demo = next(pid for pid in processes_of(state) if b"demo-2" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(demo, signal.SIGKILL)
    assert run.end() == 1
    assert "demo-2 was ended by SIGKILL: stopping the rest" in run.text
    until(lambda: not processes_of(state), timeout_s=1)


def test_up_on_a_taken_port_says_so_and_starts_nothing(state: Path, start: Callable[[], Run]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = Run(state, port)
        assert run.end() == 2
    assert f"port {port} of 127.0.0.1 cannot be used, most likely something listens there: set IGW_PORT" in run.text
    assert "starting" not in run.text
