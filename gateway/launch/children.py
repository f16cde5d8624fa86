"""The supervisor's children: started in sessions of their own, their lines shown, their ends noticed, stopped by stage.

A stage is what may stop together; stages stop from the highest to the lowest. What to start, and when, is the
supervisor's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.launch.process import LaunchError, signal_group
from gateway.runtime.lineage import die_with_parent

ROOT = Path(__file__).resolve().parent.parent.parent  # where manage.py is

_COLOURS = ("36", "33", "35", "32", "34", "96", "93", "95")
_LINE_LIMIT_BYTES = 2**20
_BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # between the restarts of a child that may be restarted
_STEADY_S = 60.0  # a child that ran for so long has its restarts back


@dataclass(frozen=True, slots=True)
class Program:
    """What to run as a child."""

    name: str
    command: Sequence[str]
    stage: int
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 10.0  # from the stop signal to SIGKILL
    is_hurried: bool = True  # a second Ctrl-C kills it at once
    is_restarted: bool = False  # up to five times; else its end is the end of all
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # keywords of Popen


@dataclass(slots=True)
class _Child:
    program: Program
    process: asyncio.subprocess.Process
    output: asyncio.Task[None]
    keeper: asyncio.Task[None] | None = None


class Console:
    """Lines on the terminal, each headed by who says it; coloured where a person looks."""

    def __init__(self) -> None:
        self._is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._colours: dict[str, str] = {}

    def say(self, name: str, text: str) -> None:
        head = f"{name:<9}|"
        if self._is_coloured:
            colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
            head = f"\x1b[{colour}m{head}\x1b[0m"
        self.show(f"{head} {text}")

    def show(self, text: str) -> None:
        try:
            print(text, flush=True)
        except OSError:  # the terminal is gone; stopping must go on
            pass


class Children:
    """Everything that runs; `on_end` is told once in a sentence when a child ended that should not have."""

    def __init__(self, console: Console, watch: Callable[[int], None], on_end: Callable[[str], None]) -> None:
        self._console = console
        self._watch = watch
        self._on_end = on_end
        self._children: list[_Child] = []
        self._stopping = asyncio.Event()

    async def start(self, program: Program) -> Callable[[], bool]:
        """Starts it and comes back at once; what is returned tells whether it still runs."""
        child = await self._spawn(program, self._console.say)
        child.keeper = asyncio.create_task(self._keep(child))
        self._children.append(child)
        return lambda: child.process.returncode is None

    async def run(self, program: Program) -> list[str]:
        """Runs it to its end and returns its lines; LaunchError with them when it fails."""
        lines: list[str] = []
        child = await self._spawn(program, lambda _, line: lines.append(line))
        self._children.append(child)
        code = await child.process.wait()
        await child.output
        self._children.remove(child)
        if code:
            raise LaunchError("\n".join([f"{program.name} failed with exit code {code}:", *lines]))
        return lines

    async def stop(self, hurry: asyncio.Event) -> None:
        """Stops all, the highest stage first; with `hurry` set, whatever need not end in order is killed."""
        self._stopping.set()
        for stage in sorted({child.program.stage for child in self._children}, reverse=True):
            await asyncio.gather(
                *(self._stop(child, hurry) for child in self._children if child.program.stage == stage)
            )

    async def _spawn(self, program: Program, say: Callable[[str, str], None]) -> _Child:
        # A pipe of our own, not asyncio's: with that one, wait() may go on for as long as a grandchild holds the pipe.
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **program.environment},
                start_new_session=True,  # a terminal's Ctrl-C reaches the supervisor alone
                preexec_fn=die_with_parent(program.stop_signal),
                **{"cwd": ROOT, **program.options},
            )
        finally:
            os.close(writing)
        self._watch(process.pid)
        output = asyncio.create_task(_read_lines(reading, lambda line: say(program.name, line)))
        return _Child(program, process, output)

    async def _keep(self, child: _Child) -> None:
        """Waits for the end of the child, and restarts it or tells of it."""
        clock, restarts = asyncio.get_running_loop().time, 0
        program = child.program
        while True:
            started = clock()
            code = await child.process.wait()
            signal_group(child.process.pid, signal.SIGKILL)  # what it left behind
            if self._stopping.is_set():
                return
            restarts = 0 if clock() - started > _STEADY_S else restarts
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
            if not program.is_restarted or restarts == len(_BACKOFF_S):
                self._on_end(f"{program.name} {how}: stopping the rest")
                return
            self._console.say(program.name, f"{how}: starting it again in {_BACKOFF_S[restarts]:g} s")
            await asyncio.sleep(_BACKOFF_S[restarts])
            restarts += 1
            if self._stopping.is_set():
                return
            again = await self._spawn(program, self._console.say)
            child.process, child.output = again.process, again.output

    async def _stop(self, child: _Child, hurry: asyncio.Event) -> None:
        process, program = child.process, child.program
        if process.returncode is None:
            process.send_signal(program.stop_signal)
            ending = asyncio.create_task(process.wait())
            hurrying = asyncio.create_task(hurry.wait())
            reasons = {ending, hurrying} if program.is_hurried else {ending}
            await asyncio.wait(reasons, timeout=program.grace_s, return_when=asyncio.FIRST_COMPLETED)
            hurrying.cancel()
            signal_group(process.pid, signal.SIGKILL)
            await ending
        if child.keeper is not None:
            child.keeper.cancel()
        await asyncio.wait({child.output}, timeout=1)  # what left its group may still hold the pipe


async def _read_lines(pipe: int, say: Callable[[str], None]) -> None:
    reader = asyncio.StreamReader(limit=_LINE_LIMIT_BYTES)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb"))
    try:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                line = f"(a line above {_LINE_LIMIT_BYTES} bytes was left out)\n".encode()
            if not line:
                return
            say(line.decode(errors="replace").rstrip())
    finally:
        transport.close()
