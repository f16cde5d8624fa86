"""A hash ring: which worker a key belongs to, so that few keys move when workers come and go.

Each worker has a number of places on the ring, taken from its id alone; a key belongs to the worker of the first place
clockwise from its own. Places are the same in every process and after every restart. Who is not asked for is passed
over, and nobody else's keys move.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from gateway.routing.snapshot import WorkerId

_BLOCK = struct.Struct("<8Q")  # one digest gives eight places


class Ring:
    """`places` is the number of places of each worker: the more, the more even the parts and the slower an edit."""

    __slots__ = ("_owners", "_places", "_places_each", "_starts")

    def __init__(self, places: int) -> None:
        self._places_each = places
        self._places: dict[WorkerId, tuple[int, ...]] = {}
        self._starts: list[int] = []
        self._owners: list[WorkerId] = []

    def keep(self, ids: Iterable[WorkerId]) -> None:
        """These workers are on the ring from now on."""
        places = {worker_id: self._places.get(worker_id) or self._places_of(worker_id) for worker_id in ids}
        if places.keys() == self._places.keys():
            return
        self._places = places
        ring = sorted((start, worker_id) for worker_id, starts in places.items() for start in starts)
        self._starts = [start for start, _ in ring]
        self._owners = [worker_id for _, worker_id in ring]

    def walk(self, key: bytes) -> Iterator[WorkerId]:
        """Every worker once, in the order in which the key would belong to them if those before were gone."""
        owners, met = self._owners, set[WorkerId]()
        (place,) = struct.unpack("<Q", blake2b(key, digest_size=8).digest())
        first = bisect_right(self._starts, place)
        for at in range(first - len(owners), first):  # from behind the end: the ring closes by negative indexes
            worker_id = owners[at]
            if worker_id not in met:
                yield worker_id
                met.add(worker_id)
                if len(met) == len(self._places):
                    return

    def _places_of(self, worker_id: WorkerId) -> tuple[int, ...]:
        places: list[int] = []
        while len(places) < self._places_each:
            places += _BLOCK.unpack(blake2b(f"{worker_id}#{len(places)}".encode()).digest())
        return tuple(places[: self._places_each])
