"""What the supervisor runs besides the stores: commands of manage.py, the Celery worker, the demo workers."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from pathlib import Path

from gateway.launch.children import ROOT, Program
from gateway.launch.process import Refused, free_port, is_port_free

_DEMO_PORTS = (18701, 18702)  # below the ephemeral range: they are asked for again at the next start


class Stage(IntEnum):
    """What stops together; the highest first."""

    STORES = 0
    DEMO = 1
    WORKER = 2
    GATEWAY = 3


def manage(command: str, *arguments: str) -> Program:
    """A command that runs to its end."""
    return Program(command, [sys.executable, str(ROOT / "manage.py"), command, *arguments], Stage.GATEWAY)


def gateway(grace_s: float) -> Program:
    """`manage.py serve`; `grace_s` covers what it gives to running calls."""
    command = [sys.executable, str(ROOT / "manage.py"), "serve"]
    return Program("gateway", command, Stage.GATEWAY, grace_s=grace_s)


def celery(state: Path) -> Program:
    """The worker with beat in it. Calls go on without it, so it is started again rather than ending all."""
    command = [sys.executable, "-m", "celery", "--quiet", "-A", "workers.app", "worker", "-B"]
    command += ["--schedule", str(state / "beat.db"), "-Q", "probes,igw", "--pool", "threads", "-c", "4"]
    command += ["-l", "warning", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    # Celery warns of being root; whoever starts all of this as root means to try it out.
    quiet = {"PYTHONWARNINGS": "ignore:::celery.platforms"}
    return Program("worker", command, Stage.WORKER, is_restarted=True, environment=quiet)


class Demo:
    """Two demo workers, on the ports that the demo pool names since it was set up."""

    def __init__(self, memory: Path) -> None:
        """`memory` keeps the ports over restarts; it lies where the configuration lies, to be lost with it."""
        self._memory = memory
        self.is_set_up = memory.is_file()
        self._ports: list[int] = json.loads(memory.read_text()) if self.is_set_up else []
        if taken := [port for port in self._ports if not is_port_free(port)]:
            raise Refused(f"port {taken[0]} of a demo worker is taken: free it, or start with IGW_DEMO=0")
        self._ports = self._ports or [free_port(wanted) for wanted in _DEMO_PORTS]

    @property
    def workers(self) -> list[Program]:
        return [self._worker(f"demo-{number}", port) for number, port in enumerate(self._ports, 1)]

    def _worker(self, name: str, port: int) -> Program:
        command = [sys.executable, str(ROOT / "manage.py"), "demo_worker", "--port", str(port), "--name", name]
        return Program(name, command, Stage.DEMO)

    @property
    def set_up(self) -> Program:
        """Makes the demo configuration, where there is none yet."""
        urls = [part for port in self._ports for part in ("--worker", f"http://127.0.0.1:{port}")]
        return manage("setup_demo", *urls)

    def remember(self) -> None:
        self._memory.write_text(json.dumps(self._ports))
