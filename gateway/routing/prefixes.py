"""Which worker has been sent how much of the beginning of a prompt: an index of prompt blocks by chained hashes.

A prompt is cut into blocks at the same places whatever its length, and a block's hash covers all before it: equal
hashes mean equal beginnings. The first 64 blocks have the given size, the next 64 twice that, and so on, so that a long
prompt costs at most `BLOCKS` steps and is known to within a small part of its length. A last part that fills no block
is not looked at.

Each worker's blocks are bounded by the bytes they stand for, the least recently sent go first. A prompt's last block
counts as sent before its first one, so tails go before heads: what a worker has is always a beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Generic, TypeVar

BLOCKS = 512  # of the default 256 bytes: 4 MiB of prompt
_DOUBLED_EVERY = 64

K = TypeVar("K", bound=Hashable)
Chain = Sequence[int]  # a hash for each whole block of a prompt


class PrefixIndex(Generic[K]):
    """The blocks of several owners. `block_bytes` is the size of the first ones, `limit_bytes` bounds each owner's.

    `chain(prompt)` gives the hashes that the other methods take.
    """

    __slots__ = ("_by_bit", "_ends", "_holders", "_limit_bytes", "_owners", "chain")

    def __init__(self, block_bytes: int, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        sizes = (block_bytes << block // _DOUBLED_EVERY for block in range(BLOCKS))
        self._ends = tuple(accumulate(sizes, initial=0))  # of the first so many blocks
        self._owners: dict[K, _Owner] = {}
        self._by_bit: dict[int, K] = {}
        self._holders: dict[int, int] = {}  # block -> bits of the owners that have it
        self.chain = lru_cache(1)(self._chain)  # each call asks two or three times in a row

    def keep(self, owners: Collection[K]) -> None:
        """These are the owners from now on; what others had is forgotten."""
        for name in self._owners.keys() - set(owners):
            self.forget(name)
            del self._by_bit[self._owners.pop(name).bit]
        free = (1 << place for place in range(len(owners)) if 1 << place not in self._by_bit)
        for name, bit in zip([name for name in owners if name not in self._owners], list(free), strict=False):
            self._owners[name] = _Owner(bit)
            self._by_bit[bit] = name

    def forget(self, name: K) -> None:
        """The owner has nothing any more."""
        owner = self._owners[name]
        while owner.blocks:
            self._drop_oldest(owner)

    def matches(self, chain: Chain) -> dict[K, int]:
        """How many bytes of the prompt's beginning each owner has; who has none is left out."""
        holders, found = self._holders, dict[K, int]()
        having = depth = 0
        for block in chain:
            still = holders.get(block, 0)
            if depth:
                still &= having
                if still != having:
                    self._note(found, having & ~still, depth)
            if not still:
                return found
            having = still
            depth += 1
        self._note(found, having, depth)
        return found

    def sent(self, name: K, chain: Chain) -> int:
        """The owner gets the prompt, and has its blocks from now on. Returns how many bytes of it it had before."""
        owner, ends, holders = self._owners[name], self._ends, self._holders
        blocks, bit = owner.blocks, owner.bit
        had = 0
        for at in range(len(chain), 0, -1):
            block = chain[at - 1]
            if block in blocks:
                blocks.move_to_end(block)
                had = had or at
            else:
                blocks[block] = size = ends[at] - ends[at - 1]
                owner.bytes += size
                holders[block] = holders.get(block, 0) | bit
        while owner.bytes > self._limit_bytes:
            self._drop_oldest(owner)
        return ends[had]

    def _chain(self, prompt: bytes) -> Chain:
        """The hashes of a prompt's whole blocks."""
        ends = self._ends
        chain = []
        before = 0
        for block in range(bisect_right(ends, len(prompt)) - 1 if self._limit_bytes else 0):
            before = hash((before, prompt[ends[block] : ends[block + 1]]))
            chain.append(before)
        return tuple(chain)

    def _note(self, found: dict[K, int], bits: int, depth: int) -> None:
        while bits:
            lowest = bits & -bits
            found[self._by_bit[lowest]] = self._ends[depth]
            bits ^= lowest

    def _drop_oldest(self, owner: _Owner) -> None:
        block, size = owner.blocks.popitem(last=False)
        owner.bytes -= size
        left = self._holders[block] & ~owner.bit
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]


class _Owner:
    """One owner's blocks with their sizes, the least recently sent first; `bytes` is what they add up to."""

    __slots__ = ("bit", "blocks", "bytes")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self.bytes = 0
