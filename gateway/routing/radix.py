"""Which worker has been sent how much of the beginning of a prompt: a radix tree over bytes.

A node holds a slice of a prompt and who has it; the way from the root to a node spells a beginning. Whoever has a node
has all nodes above it. Matches and splits fall on whole units: 1 byte for text, 4 for token ids.

Each owner's part is bounded in bytes, bookkeeping included, and what is over goes at the end of the same insert, the
least recently used first. A prompt's last node counts as used before its first one, so tails go before heads and the
oldest node of an owner never has another of the same owner below it.

Slices are compared and copied as a whole, so a call costs little more than reading the prompt once, plus a step for
each of at most `DEPTH` nodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

DEPTH = 128  # nodes looked at of one prompt; only prompts made to differ at ever more places come near
NODE_BYTES = 512  # what a node costs besides its slice, measured

K = TypeVar("K", bound=Hashable)


class RadixTree(Generic[K]):
    """The prompts of several owners. `limit_bytes` bounds each owner's part."""

    __slots__ = ("_limit_bytes", "_owners", "_root", "_unit")

    def __init__(self, unit: int, limit_bytes: int) -> None:
        self._unit = unit
        self._limit_bytes = limit_bytes
        self._root: _Node[K] = _Node(b"", None)
        self._owners: dict[K, _Owner[K]] = {}

    @property
    def total_bytes(self) -> int:
        """The sizes of all owners' parts. What several have counts for each."""
        return sum(owner.bytes for owner in self._owners.values())

    def bytes_of(self, name: K) -> int:
        """The size of an owner's part."""
        owner = self._owners.get(name)
        return 0 if owner is None else owner.bytes

    def match(self, prompt: bytes) -> dict[K, int]:
        """How many bytes of the prompt's beginning each owner has; who has none is left out."""
        unit, node, at = self._unit, self._root, 0
        way: list[tuple[int, dict[K, _Hold[K]]]] = []
        for _ in range(DEPTH):
            child = node.children.get(prompt[at : at + unit])
            if child is None:
                break
            common = self._common(child.part, prompt, at)
            at += common
            way.append((at, child.holds))
            if common < len(child.part):
                break
            node = child
        found: dict[K, int] = {}
        for at, holds in reversed(way):
            if len(holds) > len(found):  # as many are the same ones
                found = dict.fromkeys(holds, at) | found
        return found

    def insert(self, prompt: bytes, name: K) -> None:
        """The owner has the prompt from now on."""
        owner = self._owners.get(name)
        if owner is None:
            owner = self._owners[name] = _Owner(name)
        node, at, end = self._root, 0, len(prompt) - len(prompt) % self._unit
        way: list[_Node[K]] = []
        grown = [owner]
        while at < end and len(way) < DEPTH:
            child = node.children.get(prompt[at : at + self._unit])
            if child is not None:
                common = self._common(child.part, prompt, at)
                if common < len(child.part):
                    child = self._split(child, common)
                    grown += map(self._owners.__getitem__, child.holds)
                node, at = child, at + common
                way.append(node)
            elif way and not node.children and len(node.holds) == 1 and name in node.holds:
                node.part += prompt[at:end]  # what only it has grows, as a conversation does
                owner.bytes += end - at
                break
            else:
                way.append(self._add(node, prompt[at:end]))
                break
        for node in reversed(way):
            owner.use(node)
        for each in grown:
            while each.bytes > self._limit_bytes:
                self._drop_oldest(each)

    def remove(self, name: K) -> None:
        """The owner has nothing any more."""
        owner = self._owners.pop(name, None)
        while owner is not None and owner.bytes:
            self._drop_oldest(owner)

    def _common(self, part: bytes, prompt: bytes, at: int) -> int:
        """How many bytes of the slice the prompt has at that place."""
        if prompt.startswith(part, at):
            return len(part)
        unit = self._unit
        low, high = 0, min(len(part), len(prompt) - at) // unit
        while low < high:
            middle = (low + high + 1) // 2
            if prompt.startswith(part[low * unit : middle * unit], at + low * unit):
                low = middle
            else:
                high = middle - 1
        return low * unit

    def _add(self, above: _Node[K], part: bytes) -> _Node[K]:
        node = above.children[part[: self._unit]] = _Node(part, above)
        return node

    def _split(self, node: _Node[K], length: int) -> _Node[K]:
        """Put so much of the node's beginning into a new one above it, which is used as lately."""
        above = node.above
        assert above is not None  # the root's slice is empty
        upper = self._add(above, node.part[:length])
        node.part, node.above = node.part[length:], upper
        upper.children[node.part[: self._unit]] = node
        for name, hold in node.holds.items():
            upper.holds[name] = _Hold(upper, hold, hold.newer)
            self._owners[name].bytes += NODE_BYTES
        return upper

    def _drop_oldest(self, owner: _Owner[K]) -> None:
        node = owner.drop_oldest()
        if not node.holds and node.above is not None:
            del node.above.children[node.part[: self._unit]]


class _Node(Generic[K]):
    __slots__ = ("above", "children", "holds", "part")

    def __init__(self, part: bytes, above: _Node[K] | None) -> None:
        self.part = part
        self.above = above
        self.children: dict[bytes, _Node[K]] = {}  # by the first unit of their slices
        self.holds: dict[K, _Hold[K]] = {}


class _Hold(Generic[K]):
    """That an owner has a node: a link of the owner's chain, which goes by last use."""

    __slots__ = ("newer", "node", "older")

    def __init__(self, node: _Node[K], older: _Hold[K] | None = None, newer: _Hold[K] | None = None) -> None:
        self.node = node
        self.link(older or self, newer or self)

    def link(self, older: _Hold[K], newer: _Hold[K]) -> None:
        self.older, self.newer = older, newer
        older.newer = newer.older = self

    def unlink(self) -> None:
        self.older.newer, self.newer.older = self.newer, self.older


class _Owner(Generic[K]):
    """One owner's chain, closed by `end`, whose `older` is the newest and whose `newer` is the oldest."""

    __slots__ = ("bytes", "end", "name")

    def __init__(self, name: K) -> None:
        self.name = name
        self.bytes = 0
        self.end: _Hold[K] = _Hold(_Node(b"", None))

    def use(self, node: _Node[K]) -> None:
        """The owner has the node, and nothing was used later."""
        hold, end = node.holds.get(self.name), self.end
        if hold is None:
            node.holds[self.name] = _Hold(node, end.older, end)
            self.bytes += NODE_BYTES + len(node.part)
        elif hold.newer is not end:
            hold.unlink()
            hold.link(end.older, end)

    def drop_oldest(self) -> _Node[K]:
        """Have the node no more that was used longest ago."""
        hold = self.end.newer
        hold.unlink()
        node = hold.node
        del node.holds[self.name]
        self.bytes -= NODE_BYTES + len(node.part)
        return node
