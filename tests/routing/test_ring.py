from __future__ import annotations

from collections import Counter

from gateway.routing.ring import Ring
from gateway.routing.snapshot import WorkerId


def ring_of(*names: str, places: int = 150) -> Ring:
    ring = Ring(places)
    ring.keep(map(WorkerId, names))
    return ring


KEYS = [f"key-{at}".encode() for at in range(2000)]


def test_ring_walk_meets_everyone_once():
    walk = [*ring_of("a", "b", "c", "d").walk(b"some key")]
    assert (len(walk), set(walk)) == (4, {"a", "b", "c", "d"})


def test_ring_empty_walk_meets_nobody():
    assert [*Ring(150).walk(b"some key")] == []


def test_ring_places_depend_on_nothing_but_ids():
    one, other = ring_of("a", "b", "c"), ring_of("c", "x", "a", "b")
    other.keep(map(WorkerId, "bca"))
    assert [[*one.walk(key)] for key in KEYS[:50]] == [[*other.walk(key)] for key in KEYS[:50]]


def test_ring_places_are_the_same_for_ever():
    ring = ring_of("a", "b", "c")
    assert "".join(next(ring.walk(key)) for key in KEYS[:12]) == "aacbcaccacca"


def test_ring_without_one_passes_its_keys_on_and_moves_no_others():
    full, less = ring_of("a", "b", "c", "d"), ring_of("a", "b", "c")
    for key in KEYS:
        assert [each for each in full.walk(key) if each != "d"] == [*less.walk(key)]


def test_ring_parts_are_about_even():
    counts = Counter(next(ring_of(*"abcd").walk(key)) for key in KEYS[:400])
    assert all(60 < count < 140 for count in counts.values())


def test_ring_of_one_place_each_still_closes():
    ring = ring_of("a", "b", places=1)
    assert {tuple(ring.walk(key)) for key in KEYS[:100]} == {("a", "b"), ("b", "a")}
