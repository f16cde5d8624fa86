"""Children: their lines, their ends, their stop; with small shell programs in the parts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.launch.children import Children, Console, Program
from gateway.launch.process import LaunchError


@dataclass
class Screen(Console):
    """A console that keeps what it was told, and wakes who waits for a line."""

    lines: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, text: str) -> None:
        self.lines.append(text)
        self.news.set()

    def say(self, name: str, text: str) -> None:
        self.show(f"{name}: {text}")

    async def until(self, is_there: Callable[[list[str]], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_there(self.lines):
                self.news.clear()
                await self.news.wait()


@dataclass
class Stage:
    screen: Screen
    children: Children
    groups: list[int]
    hurry: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    screen, groups = Screen(), list[int]()
    stage = Stage(screen, Children(screen, groups.append, lambda sentence: screen.say("end", sentence)), groups)
    yield stage
    stage.hurry.set()
    await stage.children.stop(stage.hurry)


def shell(name: str, script: str, number: int = 0, **options: object) -> Program:
    return Program(name, ["sh", "-c", script], number, **options)  # type: ignore[arg-type]  # the tests' own short form


def is_gone(group: int) -> bool:
    """Whether no process of the group runs; one that nobody has waited for yet does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            return False
    return True


async def until_gone(group: int) -> None:
    async with asyncio.timeout(5):
        while not is_gone(group):
            await asyncio.sleep(0.02)


async def test_child_lines_are_shown_with_its_name(stage: Stage) -> None:
    await stage.children.start(shell("one", "echo out; echo err >&2; sleep 60"))
    await stage.screen.until(lambda lines: len(lines) == 2)
    assert stage.screen.lines == ["one: out", "one: err"]


async def test_child_line_above_the_limit_is_left_out(stage: Stage) -> None:
    await stage.children.start(shell("one", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo next; sleep 60"))
    await stage.screen.until(lambda lines: lines[-1:] == ["one: next"])


async def test_child_that_exits_is_named(stage: Stage) -> None:
    await stage.children.start(shell("one", "exit 3"))
    await stage.screen.until(lambda lines: lines == ["end: one exited with 3: stopping the rest"])


async def test_child_that_is_killed_takes_its_grandchildren_along(stage: Stage) -> None:
    await stage.children.start(shell("one", "sleep 60 & echo started; wait"))
    await stage.screen.until(lambda lines: lines == ["one: started"])
    os.kill(stage.groups[0], signal.SIGKILL)
    await stage.screen.until(lambda lines: lines[1:] == ["end: one was ended by SIGKILL: stopping the rest"])
    await until_gone(stage.groups[0])


async def test_restarted_child_comes_back_and_is_not_the_end(stage: Stage) -> None:
    await stage.children.start(shell("one", "echo up; sleep 60", is_restarted=True))
    await stage.screen.until(lambda lines: lines == ["one: up"])
    os.kill(stage.groups[0], signal.SIGTERM)
    await stage.screen.until(lambda lines: len(lines) == 3)
    assert stage.screen.lines == ["one: up", "one: was ended by SIGTERM: starting it again in 1 s", "one: up"]


async def test_run_returns_the_lines(stage: Stage) -> None:
    assert await stage.children.run(shell("one", "echo a; echo b")) == ["a", "b"]


async def test_run_that_fails_raises_with_the_lines(stage: Stage) -> None:
    with pytest.raises(LaunchError, match=r"^one failed with exit code 4:\nwhy$"):
        await stage.children.run(shell("one", "echo why; exit 4"))


async def test_stop_goes_from_the_highest_stage_to_the_lowest(stage: Stage) -> None:
    for number, name in enumerate(["low", "middle", "high"]):
        script = f"trap 'echo bye; exit 0' TERM; echo {name}; while :; do sleep 0.02; done"
        await stage.children.start(shell(name, script, number))
    await stage.screen.until(lambda lines: len(lines) == 3)
    await stage.children.stop(stage.hurry)
    assert stage.screen.lines[3:] == ["high: bye", "middle: bye", "low: bye"]


async def test_stop_kills_what_does_not_end_in_its_grace_time(stage: Stage) -> None:
    await stage.children.start(shell("deaf", "trap '' TERM; echo up; while :; do sleep 0.1; done", grace_s=0.2))
    await stage.screen.until(lambda lines: lines == ["deaf: up"])
    await stage.children.stop(stage.hurry)
    await until_gone(stage.groups[0])


async def test_stop_in_a_hurry_does_not_wait(stage: Stage) -> None:
    await stage.children.start(shell("deaf", "trap '' TERM; echo up; while :; do sleep 0.1; done", grace_s=60))
    await stage.screen.until(lambda lines: lines == ["deaf: up"])
    stop = asyncio.create_task(stage.children.stop(stage.hurry))
    assert await asyncio.wait({stop}, timeout=0.2) == (set(), {stop})
    stage.hurry.set()
    async with asyncio.timeout(2):
        await stop
    await until_gone(stage.groups[0])


def test_guard_ends_deaf_groups_after_the_supervisor_was_killed() -> None:
    code = (
        "import os, signal, subprocess\n"
        "from gateway.launch.process import Guard\n"
        "guard = Guard(grace_s=0.2)\n"
        "deaf = \"trap '' TERM; sleep 60 & echo up; wait; wait\"\n"
        "child = subprocess.Popen(['sh', '-c', deaf], start_new_session=True, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "guard.watch(child.pid)\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=10, check=False)
    group, deadline = int(run.stdout), time.monotonic() + 5
    while not is_gone(group):
        assert time.monotonic() < deadline
        time.sleep(0.02)
