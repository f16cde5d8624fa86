"""What is remembered for a while: a bounded map whose entries are forgotten some time after they were set."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """At most `size` entries, those set longest ago go first; each lives `ttl_s` after it was last set."""

    __slots__ = ("_entries", "_size", "_ttl_s")

    def __init__(self, size: int, ttl_s: float) -> None:
        self._size = size
        self._ttl_s = ttl_s
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        """The value, if it is still remembered."""
        entry = self._entries.get(key)
        return entry[0] if entry is not None and now < entry[1] else None

    def set(self, key: K, value: V, now: float) -> None:
        """Remember from now on."""
        self._entries.pop(key, None)
        self._entries[key] = (value, now + self._ttl_s)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def forget(self, key: K) -> None:
        """Remember no longer."""
        self._entries.pop(key, None)
