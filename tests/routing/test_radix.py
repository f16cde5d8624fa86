from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.radix import DEPTH, NODE_BYTES, RadixTree

OWNERS = ("a", "b", "c")
ROOM = 1 << 30

tokens = st.lists(st.sampled_from([b"\0\0\0\1", b"\0\0\1\0", b"\1\0\0\0"]), max_size=12).map(b"".join)
texts = st.text("ab", max_size=40).map(str.encode)
prompts = {1: texts, 4: st.builds(bytes.__add__, tokens, st.sampled_from([b"", b"\0", b"\1\0\0"]))}
units = pytest.mark.parametrize("unit", prompts)


def tree_of(unit: int, sent: Iterable[tuple[str, bytes]], limit_bytes: int = ROOM) -> RadixTree[str]:
    tree: RadixTree[str] = RadixTree(unit, limit_bytes)
    for name, prompt in sent:
        tree.insert(prompt, name)
    return tree


def common(one: bytes, other: bytes, unit: int) -> int:
    differing = (at for at, (its, others) in enumerate(zip(one, other, strict=False)) if its != others)
    length = next(differing, min(len(one), len(other)))
    return length - length % unit


def naive(unit: int, sent: Iterable[tuple[str, bytes]], prompt: bytes) -> dict[str, int]:
    """What the tree should answer, from the prompts themselves."""
    best: dict[str, int] = {}
    for name, earlier in sent:
        best[name] = max(best.get(name, 0), common(earlier, prompt, unit))
    return {name: length for name, length in best.items() if length}


@units
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_tree_matches_longest_common_beginning_of_each_owner(unit: int, data: st.DataObject):
    sent = data.draw(st.lists(st.tuples(st.sampled_from(OWNERS), prompts[unit]), max_size=30))
    tree = tree_of(unit, sent)
    for prompt in [*(each for _, each in sent), data.draw(prompts[unit])]:
        assert tree.match(prompt) == naive(unit, sent, prompt)


@units
@settings(deadline=None)
@given(data=st.data())
def test_tree_without_a_removed_owner_is_as_if_it_had_never_been(unit: int, data: st.DataObject):
    sent = data.draw(st.lists(st.tuples(st.sampled_from(OWNERS), prompts[unit]), min_size=1, max_size=30))
    tree, others = tree_of(unit, sent), [each for each in sent if each[0] != "b"]
    tree.remove("b")
    assert tree.bytes_of("b") == 0
    for _, prompt in sent:
        assert tree.match(prompt) == naive(unit, others, prompt)
    tree.remove("a")
    tree.remove("c")
    assert (tree.total_bytes, tree.match(sent[0][1])) == (0, {})


@units
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_tree_with_little_room_keeps_every_bound_and_claims_nothing_that_was_not_sent(unit: int, data: st.DataObject):
    limit = data.draw(st.integers(NODE_BYTES, 6 * NODE_BYTES))
    tree: RadixTree[str] = RadixTree(unit, limit)
    sent: list[tuple[str, bytes]] = []
    for name, prompt in data.draw(st.lists(st.tuples(st.sampled_from(OWNERS), prompts[unit]), max_size=40)):
        sent.append((name, prompt))
        tree.insert(prompt, name)
        parts = {owner: tree.bytes_of(owner) for owner in OWNERS}
        assert max(parts.values()) <= limit
        assert tree.total_bytes == sum(parts.values())
        expected = naive(unit, sent, prompt)
        assert all(expected[owner] >= length > 0 for owner, length in tree.match(prompt).items())


def test_tree_full_forgets_tails_used_longest_ago_and_keeps_common_beginnings():
    head = b"h" * 100
    sent = [("a", head + tail * 100) for tail in (b"1", b"2", b"1", b"3")]
    tree = tree_of(1, sent, 3 * (NODE_BYTES + 100))
    assert [tree.match(head + tail * 100) for tail in (b"1", b"2", b"3")] == [{"a": 200}, {"a": 100}, {"a": 200}]


def test_tree_full_of_one_owner_takes_nothing_from_others():
    tree = tree_of(1, [("b", b"rare" * 20)], 8 * NODE_BYTES)
    for at in range(200):
        tree.insert(f"{at} is unlike any".encode(), "a")
    assert tree.match(b"rare" * 20) == {"b": 80}


def test_tree_prompt_longer_than_the_bound_is_not_kept():
    tree = tree_of(1, [("a", b"short"), ("a", b"x" * 2000)], 1500)
    assert (tree.match(b"x" * 2000), tree.bytes_of("a") <= 1500) == ({}, True)


def test_tree_split_by_one_owner_keeps_the_bound_of_another():
    tree = tree_of(1, [("a", b"x" * 100)], NODE_BYTES + 100)
    tree.insert(b"x" * 50, "b")
    assert tree.match(b"x" * 100) == {"a": 50, "b": 50}
    assert tree.bytes_of("a") == NODE_BYTES + 50


def test_tree_conversation_of_one_owner_stays_one_node():
    conversation = b"some words " * 300
    tree = tree_of(1, [("a", conversation[:length]) for length in range(10, len(conversation), 10)])
    assert tree.bytes_of("a") == NODE_BYTES + len(conversation) - 10


def test_tree_ever_new_places_to_differ_look_at_so_many_nodes_only():
    tree = tree_of(1, [("ab"[at % 2], b"x" * at) for at in range(1, 1000)])
    assert tree.match(b"x" * 1000) == {"a": DEPTH, "b": DEPTH}
    assert tree.match(b"x" * DEPTH) == {"a": DEPTH, "b": DEPTH}


def test_tree_flooded_with_different_prompts_takes_the_memory_it_counts():
    chance, limit = random.Random(1), 262_144
    prompts = [chance.randbytes(chance.choice([2, 3, 5, 60])) for _ in range(20_000)]
    tracemalloc.start()
    try:
        tree = tree_of(1, zip("ab" * 10_000, prompts, strict=True), limit)
        used_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert tree.total_bytes <= 2 * limit
    assert used_bytes < 2.5 * limit
