"""The metrics of several processes of one host, through files: whoever is scraped adds up what all of them counted.

    <process>.bin    the last State of a process, replaced whole every second
    <process>.lock   locked while that process lives; the lock, not a pid, says so
    retired.bin      the sum of the dead ones: counters never fall when a process is replaced
    directory.lock   held while locks are made and dead processes are folded into retired.bin

Folding may be killed at any point without counting a process twice: retired.bin names the runs that the last folding
took in, their files are deleted after that, and each folding takes all that are dead. What a process counted in its
last second is lost when it is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.telemetry.families import State, lasting, merge

_log = logging.getLogger(__name__)
_RETIRED = "retired"


class DumpDirectory:
    """One process's place among the dumps. All methods touch the disk: none belongs on an event loop."""

    def __init__(self, directory: Path, process: str) -> None:
        self._directory = directory
        self._process = process
        self._lock: int | None = None

    def write(self, state: State) -> None:
        """Replace this process's dump. BlockingIOError: a living process has this name."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._exclusive():
            if self._lock is None:
                self._fold_dead()
                self._lock = self._try_lock(self._process)
            if self._lock is None:
                raise BlockingIOError(f"another process writes {self._path(self._process)}")
            self._replace(self._process, state)

    def others(self) -> list[State]:
        """The states of all other processes, the dead ones as one. None before the first `write`."""
        if self._lock is None:
            return []
        with self._exclusive():
            self._fold_dead()
            return [state for name in sorted(self._names() - {self._process}) if (state := self._read(name))]

    def close(self) -> None:
        """Give the name up; the next scrape counts this process among the dead."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _names(self) -> set[str]:
        return {path.stem for path in self._directory.glob("*.bin")}

    def _fold_dead(self) -> None:
        dead = []
        for name in self._names() - {_RETIRED}:
            if (lock := self._try_lock(name)) is not None:
                os.close(lock)
                dead.append(name)
        states = [state for name in dead if (state := self._read(name))]
        if states:
            retired = self._read(_RETIRED) or State(_RETIRED, {})
            families = lasting(merge([*(state for state in states if state.run not in retired.folded), retired]))
            self._replace(_RETIRED, State(_RETIRED, families, [state.run for state in states]))
        for name in dead:
            self._path(name).unlink()
            self._path(name, ".lock").unlink()

    def _read(self, name: str) -> State | None:
        try:
            return msgspec.msgpack.decode(self._path(name).read_bytes(), type=State)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:  # written by another release: its counts start again
            _log.warning("metrics dump left out", extra={"fields": {"process": name, "error": str(error)}})
            return None

    def _replace(self, name: str, state: State) -> None:
        path, draft = self._path(name), self._path(name, ".new")
        draft.write_bytes(msgspec.msgpack.encode(state))
        draft.replace(path)

    def _path(self, name: str, suffix: str = ".bin") -> Path:
        return self._directory / f"{name}{suffix}"

    def _try_lock(self, name: str) -> int | None:
        descriptor = os.open(self._path(name, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        descriptor = os.open(self._path("directory", ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
