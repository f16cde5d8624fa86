"""Which workers a key was sent to: the memory of one process, and what it owes the memory that all processes share.

A key has up to two workers, in the order in which they came: the second one stood in for the first, which gets the key
back when it can. A third one takes the place of the first. A key nobody uses is forgotten after `max_idle_s`, and
beyond `max_keys` the one used longest ago.

    served    a worker served a call of the key        a change, or a use that was not told for a while, becomes a claim
    claims    what is to be told the others            until it is settled
    settle    the answer to a claim: what stands       replaces what was claimed, not what came after it
    learn     what stands, as others told              counts for nothing while a claim of the key is open

What stands is what the first claim made of what it knew, so two processes that send one key to different workers
agree after their claims. Keys are digests, as nothing of a client's own may be written down.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from itertools import islice

from gateway.routing.snapshot import WorkerId

WORKERS = 2
_TOLD_S = 60.0  # a key in use is told again so often, that it is not forgotten elsewhere

Workers = tuple[WorkerId, ...]


def digest(key: str) -> str:
    """What stands for a client's key."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Claim:
    """A key is to have `workers` if it has `before`, or nobody. Equal ones only tell that the key is in use."""

    key: str
    before: Workers
    workers: Workers


class StickyMap:
    """Keys and their workers. Times are monotonic seconds."""

    __slots__ = ("__weakref__", "_counts", "_entries", "_owed", "_told_s", "max_idle_s", "max_keys")

    def __init__(self, max_idle_s: float, max_keys: int) -> None:
        self.max_idle_s = max_idle_s
        self.max_keys = max_keys
        self._told_s = min(_TOLD_S, max_idle_s / 4)
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the one used longest ago first
        self._owed: dict[str, None] = {}  # keys to claim, the oldest first
        self._counts: Counter[WorkerId] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str, now: float) -> Workers:
        """The key's workers in the order to try them; none: it is not known."""
        entry = self._entries.get(key)
        return () if entry is None or self._is_over(entry, now) else entry.workers

    def keys_of(self, worker: WorkerId) -> int:
        """How many keys have the worker."""
        return self._counts[worker]

    def served(self, key: str, worker: WorkerId, now: float) -> None:
        """The worker serves a call of the key."""
        self._purge(now)
        entry = self._entries.get(key)
        if entry is not None and self._is_over(entry, now):
            self._drop(key)
            entry = None
        if entry is None:
            entry = self._new(key)
        self._use(key, entry, now)
        if worker not in entry.workers:
            self._set(entry, (*entry.workers, worker)[-WORKERS:])
            self._owed[key] = None
        elif now - entry.told_at >= self._told_s:
            self._owed[key] = None

    def claims(self, count: int) -> list[Claim]:
        """The first so many things to tell, the same until they are settled."""
        entries = self._entries
        return [Claim(key, entries[key].standing, entries[key].workers) for key in islice(self._owed, count)]

    def settle(self, claim: Claim, standing: Workers, now: float) -> None:
        """A claim was answered: these workers stand."""
        entry = self._entries.get(claim.key)
        if entry is None:
            return
        entry.standing, entry.told_at = standing, now
        if standing != claim.workers or entry.workers == claim.workers:
            self._set(entry, standing)
            self._owed.pop(claim.key, None)

    def learn(self, key: str, workers: Workers, used_at: float) -> None:
        """Others say that these workers stand."""
        if key in self._owed:
            return
        entry = self._entries.get(key)
        if entry is None:
            entry = self._new(key)
        if used_at > entry.used_at:
            self._use(key, entry, used_at)
        self._set(entry, workers)
        entry.standing, entry.told_at = workers, used_at

    def _new(self, key: str) -> _Entry:
        if len(self._entries) >= self.max_keys:
            self._drop(next(iter(self._entries)))
        entry = self._entries[key] = _Entry()
        return entry

    def _use(self, key: str, entry: _Entry, now: float) -> None:
        entry.used_at = now
        self._entries.move_to_end(key)

    def _set(self, entry: _Entry, workers: Workers) -> None:
        self._counts.subtract(entry.workers)
        self._counts.update(workers)
        entry.workers = workers

    def _is_over(self, entry: _Entry, now: float) -> bool:
        return entry.used_at + self.max_idle_s <= now

    def _purge(self, now: float) -> None:
        while self._entries and self._is_over(next(iter(self._entries.values())), now):
            self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        self._set(self._entries.pop(key), ())
        self._owed.pop(key, None)


class _Entry:
    """One key. `standing` is what the others are known to hold for it, none if they were not told."""

    __slots__ = ("standing", "told_at", "used_at", "workers")

    def __init__(self) -> None:
        self.workers: Workers = ()
        self.standing: Workers = ()
        self.used_at = self.told_at = float("-inf")
