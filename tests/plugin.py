"""Early pytest plugin: real Postgres and Valkey, secrets and a state directory, before Django reads the settings.

Named in `addopts`, because pytest-django reads the settings before any conftest.py. A URL that is set in the
environment is used as it is. Under xdist the controller starts the stores, and each worker gets a Redis database of
its own.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from gateway.launch.embedded import Postgres, Store, Valkey
from gateway.runtime.lineage import die_with_parent

_children: list[tuple[Store, subprocess.Popen[bytes]]] = []
_state: Path | None = None


def _start(store: Store, state: Path) -> str:
    store.prepare()
    with (state / f"{store.name}.log").open("wb") as log:
        child = subprocess.Popen(
            store.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is pytest's; the stores outlive its teardown
            preexec_fn=die_with_parent(store.stop_signal),
            **store.options,
        )
    _children.append((store, child))
    store.wait(lambda: child.poll() is None)
    return store.url


def _prepare() -> None:
    global _state
    _state = Path(tempfile.mkdtemp(prefix="igw-test-"))
    _state.chmod(0o711)  # the account that Postgres runs as passes through
    atexit.register(_stop)  # pytest_unconfigure is not called when the settings fail
    os.environ["IGW_STATE_DIR"] = str(_state)
    os.environ["IGW_SECRET_KEYS"] = secrets.token_urlsafe(32)
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = _start(Postgres(_state, is_durable=False), _state)
    if not os.environ.get("REDIS_URL"):
        os.environ["REDIS_URL"] = _start(Valkey(_state, is_durable=False), _state)


def pytest_report_header() -> str:
    return f"stores: {', '.join(store.name for store, _ in _children) or 'as the environment names them'}"


def _stop() -> None:
    for store, child in reversed(_children):
        child.send_signal(store.stop_signal)
        child.wait(10)
    if _state is not None:
        shutil.rmtree(_state, ignore_errors=True)


if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # "gw0", "gw1" ...: the URLs are the controller's
    os.environ["REDIS_URL"] = os.environ["REDIS_URL"].rsplit("/", 1)[0] + f"/{1 + int(worker[2:])}"
else:
    _prepare()
