"""`manage.py up`: starts everything in order, says once where it is, and stops everything in reverse order.

It runs before Django's settings can be read, because it makes what they need: the secret keys and, unless their URLs
are set, the stores. How children are run is `children`'s, what the stores are is `embedded`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from django.core.exceptions import ImproperlyConfigured

from gateway.launch.children import Children, Console, Program
from gateway.launch.embedded import Postgres, Store, Valkey
from gateway.launch.process import Guard, LaunchError, Refused, is_port_free
from gateway.launch.programs import Demo, Stage, celery, gateway, manage
from gateway.launch.ready import is_schema_current, until_status
from gateway.launch.summary import Place, secret_lines, summary

# Wanted, not needed. Below the ephemeral range, whose ports may be lent to outgoing connections.
_POSTGRES_PORT, _VALKEY_PORT = 15432, 16379
_LOCK_WAIT_S = 10.0  # for what a killed run left; its guard needs five
_LIVE_S, _READY_S = 60.0, 15.0

_ABOUT = """Starts Postgres and Valkey (unless DATABASE_URL and REDIS_URL are set), migrates, and starts the
gateway, the Celery worker with beat and, with IGW_DEMO=1, two demo workers. Ctrl-C stops everything; a second one
does not wait for running calls. Settings are environment variables: IGW_HOST, IGW_PORT, IGW_STATE_DIR, IGW_DEMO and
those in README.md."""


def main(arguments: Sequence[str]) -> int:
    """Runs until it is stopped (0), a child ends (1) or the start fails (1; 2 when nothing was started)."""
    argparse.ArgumentParser(prog="manage.py up", description=_ABOUT).parse_args(arguments)
    state = Path(os.environ.get("IGW_STATE_DIR", "").strip() or ".igw").absolute()
    try:
        with _locked(state):
            _ensure_secret_keys(state)
            guard = Guard()
            exit_code = asyncio.run(Supervisor(state, guard.watch).run())
            guard.dismiss()
            return exit_code
    except LaunchError as problem:
        print(f"igw: {problem}", file=sys.stderr)
        return problem.exit_code


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    state.mkdir(mode=0o711, parents=True, exist_ok=True)  # the account that Postgres runs as passes through
    with (state / "lock").open("a+") as lock:
        deadline = time.monotonic() + _LOCK_WAIT_S
        while not _take(lock.fileno()):
            lock.seek(0)
            holder = lock.read().strip()
            if _is_running(holder) or time.monotonic() > deadline:
                raise Refused(f"{state} is in use by another `manage.py up` (pid {holder or 'unknown'}): stop it first")
            time.sleep(0.1)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_running(pid: str) -> bool:
    """Whether there is such a process; when it was killed, only the guard of its children still holds the lock."""
    try:
        os.kill(int(pid or 0), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _ensure_secret_keys(state: Path) -> None:
    if not os.environ.get("IGW_SECRET_KEYS", "").strip():
        try:
            file = os.open(state / "secret_keys", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return
        with os.fdopen(file, "w") as keys:
            keys.write(secrets.token_urlsafe(48) + "\n")


class Supervisor:
    """One run of everything in one state directory."""

    def __init__(self, state: Path, watch: Callable[[int], None]) -> None:
        self._state = state
        self._console = Console()
        self._children = Children(self._console, watch, self._fail)
        self._end = asyncio.Event()
        self._hurry = asyncio.Event()
        self._exit_code = 0
        self._started = time.monotonic()
        self._postgres: Postgres | None = None  # the embedded one
        self._made: dict[str, str] | None = None  # by setup_demo; None without a demo
        self._is_told = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt)
        start = asyncio.create_task(self._start())
        start.add_done_callback(self._check_start)
        await self._end.wait()
        start.cancel()
        await self._children.stop(self._hurry)
        self._stores_file.unlink(missing_ok=True)
        if self._made and not self._is_told:  # the start failed, but what was made cannot be shown again
            self._console.show("\n".join(secret_lines(self._made)))
        self._console.say("igw", "stopped")
        return self._exit_code

    def _interrupt(self) -> None:
        if self._end.is_set():
            self._hurry.set()
        else:
            self._console.say("igw", "stopping; again to not wait for running calls")
            self._end.set()

    def _fail(self, sentence: str, exit_code: int = 1) -> None:
        if not self._end.is_set():
            self._console.say("igw", sentence)
            self._exit_code = exit_code
            self._end.set()

    def _check_start(self, start: asyncio.Task[None]) -> None:
        problem = None if start.cancelled() else start.exception()
        if isinstance(problem, LaunchError):
            self._fail(str(problem), problem.exit_code)
        elif problem is not None:
            self._fail(f"the start failed: {type(problem).__name__}: {problem}")

    # ---- the order of the start -------------------------------------------------------------------------------------

    async def _start(self) -> None:
        os.environ["IGW_STATE_DIR"] = str(self._state)
        await self._start_stores()
        settings = _settings()
        demo = (
            Demo((self._postgres.root if self._postgres else self._state) / "demo.json") if settings.IS_DEMO else None
        )
        for worker in demo.workers if demo else ():
            await self._children.start(worker)
        if not await asyncio.to_thread(is_schema_current, settings.DATABASE_URL, settings.INSTALLED_APPS):
            self._console.say("igw", "migrating")
            await self._children.run(manage("migrate", "--noinput", "-v0"))
        await self._children.start(celery(self._state))
        if demo:
            await self._set_up(demo)
        await self._children.start(gateway(settings.DRAIN_DELAY_S + settings.GRACE_S + 5))
        await self._tell(Place(settings.HOST, settings.PORT, settings.CONTROL_PORT))

    async def _set_up(self, demo: Demo) -> None:
        """An embedded database that was set up is not asked again; one of elsewhere may have been emptied."""
        lines = [] if demo.is_set_up and self._postgres else await self._children.run(demo.set_up)
        self._made = dict(line.split("=", 1) for line in lines if "=" in line)
        demo.remember()

    async def _start_stores(self) -> None:
        stores: dict[str, Store] = {}
        if not os.environ.get("DATABASE_URL", "").strip():
            stores["DATABASE_URL"] = self._postgres = Postgres(self._state, wanted_port=_POSTGRES_PORT)
        if not os.environ.get("REDIS_URL", "").strip():
            stores["REDIS_URL"] = Valkey(self._state, wanted_port=_VALKEY_PORT)
        for variable, store in stores.items():
            await asyncio.to_thread(store.prepare)
            os.environ[variable] = store.url
        _check_ports()
        for store in stores.values():
            program = Program(
                store.name, store.command, Stage.STORES, store.stop_signal, is_hurried=False, options=store.options
            )
            is_alive = await self._children.start(program)
            await asyncio.to_thread(store.wait, is_alive)
        self._write_stores({variable.lower(): store.url for variable, store in stores.items()})

    @property
    def _stores_file(self) -> Path:
        return self._state / "stores.json"

    def _write_stores(self, urls: dict[str, str]) -> None:
        """For other commands of manage.py while this runs; they hold passwords."""
        self._stores_file.unlink(missing_ok=True)
        with os.fdopen(os.open(self._stores_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(urls, file)

    async def _tell(self, place: Place) -> None:
        """Says once where everything is, when the gateway answers."""
        host, port = place.reachable_host, place.port
        if not await until_status(host, port, "/live", 200, _LIVE_S):
            raise LaunchError(f"the gateway did not answer within {_LIVE_S:g} s")
        is_ready = await until_status(host, port, "/ready", 200, _READY_S)
        seconds = time.monotonic() - self._started
        self._console.show(summary(place, seconds=seconds, is_ready=is_ready, made=self._made))
        self._is_told = True


def _settings() -> ModuleType:
    """Django's settings as a plain module: not before the stores' URLs are in the environment."""
    try:
        from gateway import settings
    except ImproperlyConfigured as problem:
        raise Refused(str(problem)) from problem
    return settings


def _check_ports() -> None:
    settings = _settings()
    for name, port in (("IGW_PORT", settings.PORT), ("IGW_CONTROL_PORT", settings.CONTROL_PORT)):
        if port and not is_port_free(port, settings.HOST):
            raise Refused(
                f"port {port} of {settings.HOST} cannot be used, most likely something listens there: set {name}"
            )
