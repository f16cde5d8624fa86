from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.routing.worker import ALONE
from gateway.runtime.board import Board
from gateway.runtime.lineage import die_with_parent
from tests.fakes.valkey import until

# A process that does what it is told, line by line, and answers each line.
PROCESS = """
import pathlib, sys
from gateway.runtime.board import Board

board = Board(pathlib.Path(sys.argv[1]))
cells = {}
print(board.row, flush=True)
for line in sys.stdin:
    name, *numbers = line.split()
    cell = cells.setdefault(name, board.cell(name))
    if len(numbers) == 3:  # calls, tokens, times
        for _ in range(int(numbers[2])):
            cell.add(int(numbers[0]), int(numbers[1]))
    board.sweep()
    print(cell.other_calls(), cell.other_tokens(), flush=True)
"""


class Process:
    """A real process with the board open."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", PROCESS, str(path)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent()
        )
        assert self._child.stdin
        assert self._child.stdout
        self._in, self._out = self._child.stdin, self._child.stdout
        self.row = int(self._out.readline())

    def begin(self, name: str, calls: int = 0, tokens: int = 0, times: int = 1) -> None:
        self._in.write(f"{name} {calls} {tokens} {times}\n")
        self._in.flush()

    def end(self) -> list[int]:
        """What the others have, as it then saw it."""
        return [int(number) for number in self._out.readline().split()]

    def add(self, name: str, calls: int, tokens: int = 0) -> list[int]:
        self.begin(name, calls, tokens)
        return self.end()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(5)
        self._in.close()
        self._out.close()


@contextmanager
def process(path: Path) -> Iterator[Process]:
    one = Process(path)
    try:
        yield one
    finally:
        one.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "board"


@pytest.fixture
def board(path: Path) -> Iterator[Board]:
    board = Board(path)
    yield board
    board.close()


def test_cell_of_a_lone_process_sees_no_others(board: Board) -> None:
    cell = board.cell("w1")
    cell.add(3, 100)
    assert (board.is_alone, cell.other_calls(), cell.other_tokens()) == (True, 0, 0)
    assert board.cell("w1") is cell


def test_counts_of_two_processes_each_sees_the_others_and_not_its_own(board: Board, path: Path) -> None:
    cell = board.cell("w1")
    cell.add(2, 50)
    with process(path) as other:
        assert other.add("w1", 3, 700) == [2, 50]
        assert other.add("p7", 1) == [0, 0]
        board.sweep()
        assert (cell.other_calls(), cell.other_tokens()) == (3, 700)
        other.add("w1", -3, -700)
        assert (cell.other_calls(), cell.other_tokens()) == (0, 0)


async def test_process_killed_its_counts_are_gone_within_two_seconds(board: Board, path: Path) -> None:
    cell = board.cell("w1")
    sweeping = asyncio.create_task(board.run())
    with process(path) as other:
        other.add("w1", 5, 90)
        await until(lambda: (cell.other_calls(), cell.other_tokens()) == (5, 90))
        other.kill()
        killed = time.monotonic()
        await until(lambda: board.is_alone)
        assert time.monotonic() - killed < 2
    sweeping.cancel()
    with process(path) as again:
        assert (again.row, again.add("w1", 1)) == (1, [0, 0])
        board.sweep()
        assert cell.other_calls() == 1


def test_processes_adding_at_the_same_time_lose_no_count(board: Board, path: Path) -> None:
    cell = board.cell("w1")
    with process(path) as one, process(path) as other:
        one.begin("w1", 1, 2, 50_000)
        other.begin("w1", 1, 2, 50_000)
        for _ in range(50_000):
            cell.add(1, 2)
        one.end()
        other.end()
        board.sweep()
        assert (cell.other_calls(), cell.other_tokens()) == (100_000, 200_000)
        assert one.add("w1", 0) == [100_000, 200_000]


def test_processes_that_count_and_then_look_never_both_miss_the_other(board: Board, path: Path) -> None:
    cell, missed = board.cell("w0"), 0
    with process(path) as other:
        other.add("w0", 0)
        board.sweep()
        for number in range(300):
            cell = board.cell(f"w{number}")
            other.begin(f"w{number}", 1)
            cell.add(1, 0)
            mine, theirs = cell.other_calls(), other.end()[0]
            missed += not (mine or theirs)
    assert missed == 0


def test_board_after_everything_was_killed_is_clean(path: Path) -> None:
    with process(path) as one, process(path) as other:
        one.add("w1", 5)
        other.add("w1", 7)
    board = Board(path)
    cell = board.cell("w1")
    with process(path) as other:
        assert other.add("w1", 0) == [0, 0]
        board.sweep()
        assert (board.row, cell.other_calls()) == (0, 0)
    board.close()


def test_board_of_a_wrong_size_or_version_is_replaced(path: Path) -> None:
    sizes = []
    for wrong in (b"short", b"igwboard" + bytes(100), None):
        path.parent.mkdir(exist_ok=True)
        if wrong is None:
            with path.open("r+b") as file:
                file.write(b"otherfmt")
        else:
            path.write_bytes(wrong)
        board = Board(path)
        assert board.row == 0
        board.close()
        sizes.append(path.stat().st_size)
    assert len(set(sizes)) == 1


def test_board_closed_gives_its_row_back_and_its_cells_go_on(board: Board, path: Path) -> None:
    other = Board(path)
    cell, mine = other.cell("w1"), board.cell("w1")
    cell.add(4, 0)
    board.sweep()
    assert (other.row, mine.other_calls()) == (1, 4)
    other.close()
    cell.add(-4, 0)
    board.sweep()
    assert (board.is_alone, mine.other_calls(), other.cell("w1")) == (True, 0, ALONE)


def test_boards_beyond_the_last_row_share_with_nobody(path: Path) -> None:
    boards = [Board(path) for _ in range(65)]
    assert [board.row for board in boards] == [*range(64), None]
    assert (boards[64].cell("w1"), boards[64].is_alone) == (ALONE, True)
    for board in boards:
        board.close()


def test_names_nobody_uses_make_room_for_others(board: Board, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = Board(path)
    kept = {f"w{number}": other.cell(f"w{number}") for number in range(8000)}
    for number in range(30_000):  # more than there are columns, and each is dropped at once
        assert board.cell(f"x{number}") is not ALONE
    used = [other.cell(name) for name in kept]
    assert used == list(kept.values())
    kept["w7"].add(3, 0)
    board.sweep()
    assert (board.cell("w7").other_calls(), caplog.records) == (3, [])
    del used
    other.close()


def test_names_in_use_beyond_the_columns_share_with_nobody_and_that_is_said_once(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [board.cell(f"w{number}") for number in range(17_000)]
    assert cells.count(ALONE) >= 17_000 - 16_384
    assert len(caplog.records) == 1


def test_board_that_cannot_be_opened_shares_with_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    board = Board(tmp_path / "file" / "board")
    assert (board.cell("w1"), board.is_alone, len(caplog.records)) == (ALONE, True, 1)
    board.close()
