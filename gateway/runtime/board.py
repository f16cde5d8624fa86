"""The load board of a host: how many calls each gateway process has in flight at a worker or pool, in shared memory.

The board is one file, mapped by every process. A process is a row, a name (of a worker or pool) is a column:

    header    version and size; a byte for each row that was taken and not cleaned since
    names     a digest for each column
    claims    row by row: a byte for each column, whether that process uses it
    counts    column by column: calls of every row, then tokens of every row, so that a sum is over one slice

Nobody waits on the way of a call: a process writes to its own row only, and reads those of the others. It owns a row by
a lock on a byte of the file, which the kernel takes back however the process ends. Each process looks once a second
which rows are owned: within that time it sees a new process, and cleans the row of one that crashed.

The lock is one of the open file description (F_OFD_SETLK): a POSIX record lock would go with the first descriptor of
the file that this process closes, and would let two boards of one process have the same row. The descriptor is closed
on exec, so that no child keeps the lock. Take a board in the process that serves, not before a fork.

A column is found by its digest, at most `_PROBES` places behind the one that the digest says. A place once used never
becomes empty again, but may be taken over by another name when no process claims it. Only this waits, for the other
processes that look for a column. Names that find no place, a 65th process, and systems without such locks share with
nobody: they see their own calls only.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from gateway.routing.worker import ALONE, Cell

log = logging.getLogger(__name__)

SWEEP_S = 1.0
_ROWS = 64
_COLUMNS = 16_384  # above what a gateway's workers, pools and recently used account models come to
_PROBES = 64

_HEAD = struct.pack("<8sIII", b"igwboard", 1, _ROWS, _COLUMNS)
_TAKEN = 64
_NAMES = 4096
_NAME_BYTES = 16
_CLAIMS = _NAMES + _COLUMNS * _NAME_BYTES
_COUNTS = _CLAIMS + _ROWS * _COLUMNS
_WIDTH = 2 * _ROWS  # counts of a column; 64 bits each, which one instruction writes
_SIZE = _COUNTS + _COLUMNS * _WIDTH * 8
_NOBODY = bytes(_NAME_BYTES)
_ZERO = bytes(8)

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux


class Board:
    """One for a process, opened at once. `is_alone`: no other process has a row, as of the last sweep."""

    def __init__(self, path: Path) -> None:
        self.is_alone = True
        self.width = 0  # rows up to the last one that is owned
        self.row: int | None = None  # None: this process shares with nobody
        self._path = path
        self._cells: WeakValueDictionary[str, _Cell] = WeakValueDictionary()
        self._is_full = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                self._file = _open(path)
                self._map = mmap.mmap(self._file, _SIZE)
                self._take_row()
        except OSError as error:
            log.warning("counts of calls are not shared", extra={"fields": {"error": str(error)}})
            return
        self._claims = memoryview(self._map)[_CLAIMS:_COUNTS]
        self.counts = memoryview(self._map)[_COUNTS:].cast("q")
        self.sweep()

    def cell(self, name: str) -> Cell:
        """The counts that every process of this host has under this name. Not to be asked for on the way of a call."""
        if self.row is None:
            return ALONE
        cell = self._cells.get(name)
        if cell is None:
            with self._locked():
                column = self._column(hashlib.blake2b(name.encode(), digest_size=_NAME_BYTES).digest())
                if column is None:
                    return self._no_room()
                self._claims[self.row * _COLUMNS + column] = 1
            cell = self._cells[name] = _Cell(self, column, self.row)
        return cell

    def sweep(self) -> None:
        """See which rows are owned, and clean those that are not."""
        if self.row is None:
            return
        owned = [row for row in range(_ROWS) if row == self.row or self._is_owned(row)]
        self.width = owned[-1] + 1
        self.is_alone = len(owned) == 1

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    def close(self) -> None:
        """Give the row back. Cells that are still used go on for themselves."""
        if self.row is None:
            return
        for cell in list(self._cells.values()):
            cell.detach()
        self._clean(self.row)
        self.row, self.is_alone = None, True
        self._claims.release()
        self.counts.release()
        self._map.close()
        os.close(self._file)

    def give_up(self, column: int) -> None:
        """This process no longer uses a column."""
        if self.row is not None:
            self._claims[self.row * _COLUMNS + column] = 0

    # ---- rows -------------------------------------------------------------------------------------------------------

    def _take_row(self) -> None:
        for row in range(_ROWS):
            if _lock(self._file, row):
                self._clean(row)
                self._map[_TAKEN + row] = 1
                self.row = row
                return
        raise OSError(f"all {_ROWS} rows of the board are taken")

    def _is_owned(self, row: int) -> bool:
        if not self._map[_TAKEN + row]:
            return False
        if not _lock(self._file, row):
            return True
        self._clean(row)
        _unlock(self._file, row)
        return False

    def _clean(self, row: int) -> None:
        """Make a row that we have locked as if it had never been used."""
        start = _CLAIMS + row * _COLUMNS
        at = start - 1
        while (at := self._map.find(b"\1", at + 1, start + _COLUMNS)) >= 0:
            calls = _COUNTS + 8 * ((at - start) * _WIDTH + row)
            tokens = calls + 8 * _ROWS
            self._map[calls : calls + 8] = self._map[tokens : tokens + 8] = _ZERO
            self._map[at] = 0
        self._map[_TAKEN + row] = 0

    # ---- columns ----------------------------------------------------------------------------------------------------

    def _column(self, digest: bytes) -> int | None:
        """Where this name is counted; None: there is no room. Called under the lock."""
        home, free = int.from_bytes(digest[:4], "little"), None
        for step in range(_PROBES):
            column = (home + step) % _COLUMNS
            at = _NAMES + column * _NAME_BYTES
            name = self._map[at : at + _NAME_BYTES]
            if name == digest:
                return column
            if free is None and (name == _NOBODY or not any(self._claims[column::_COLUMNS])):
                free = column
            if name == _NOBODY:
                break
        if free is not None:
            at = _NAMES + free * _NAME_BYTES
            self._map[at : at + _NAME_BYTES] = digest
        return free

    def _no_room(self) -> Cell:
        if not self._is_full:
            self._is_full = True
            log.warning("the board is full: some counts of calls are not shared")
        return ALONE

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the layout of the board, and with the file that the path names."""
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class _Cell:
    """Implements `routing.worker.Cell`. What this process has is kept here too, so that adding reads nothing."""

    __slots__ = (
        "__weakref__",
        "_board",
        "_calls",
        "_calls_at",
        "_column",
        "_counts",
        "_first",
        "_tokens",
        "_tokens_at",
    )

    def __init__(self, board: Board, column: int, row: int) -> None:
        self._board = board
        self._column = column
        self._counts: memoryview[int] | array[int] = board.counts
        self._first = column * _WIDTH
        self._calls_at = self._first + row
        self._tokens_at = self._calls_at + _ROWS
        self._calls = self._tokens = 0

    def add(self, calls: int, tokens: int) -> None:
        self._calls = self._counts[self._calls_at] = self._calls + calls
        if tokens:
            self._tokens = self._counts[self._tokens_at] = self._tokens + tokens

    def other_calls(self) -> int:
        board = self._board
        if board.is_alone:
            return 0
        first = self._first
        return sum(self._counts[first : first + board.width]) - self._calls

    def other_tokens(self) -> int:
        board = self._board
        if board.is_alone:
            return 0
        first = self._first + _ROWS
        return sum(self._counts[first : first + board.width]) - self._tokens

    def detach(self) -> None:
        """Count for this process only from now on."""
        self._counts = array("q", (0, 0))
        self._calls_at, self._tokens_at = 0, 1

    def __del__(self) -> None:
        if isinstance(self._counts, memoryview):
            self._counts[self._calls_at] = self._counts[self._tokens_at] = 0
            self._board.give_up(self._column)


def _open(path: Path) -> int:
    """The file of the board, new if there is none or another version's, which processes that have it go on using."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    else:
        if os.fstat(file).st_size == _SIZE and os.pread(file, len(_HEAD), 0) == _HEAD:
            return file
        os.close(file)
    new = path.with_name(path.name + ".new")
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.ftruncate(file, _SIZE)
    os.pwrite(file, _HEAD, 0)
    os.replace(new, path)
    return file


def _lock(file: int, row: int) -> bool:
    """Whether the row is ours now."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        raise OSError("this system has no locks of open file descriptions")
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, row, 1, 0))
    except BlockingIOError:
        return False
    return True


def _unlock(file: int, row: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, row, 1, 0))
