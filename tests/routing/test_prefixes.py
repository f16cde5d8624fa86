"""The index of prompt beginnings."""

from __future__ import annotations

import random

import pytest

from gateway.routing.prefixes import BLOCKS, PrefixIndex

TEXT = random.Random(5).randbytes(200_000)


def index(*owners: str, block_bytes: int = 8, limit_bytes: int = 100_000) -> PrefixIndex[str]:
    made: PrefixIndex[str] = PrefixIndex(block_bytes, limit_bytes)
    made.keep(owners)
    return made


def send(to: PrefixIndex[str], owner: str, prompt: bytes) -> int:
    return to.sent(owner, to.chain(prompt))


def found(of: PrefixIndex[str], prompt: bytes) -> dict[str, int]:
    return of.matches(of.chain(prompt))


def test_beginning_is_known_in_whole_blocks():
    prefixes = index("a", "b", "c")
    send(prefixes, "a", TEXT[:80])
    send(prefixes, "b", TEXT[:20] + b"x" * 60)
    assert found(prefixes, TEXT[:70] + b"y" * 100) == {"a": 64, "b": 16}


def test_sent_tells_what_was_there_before():
    prefixes = index("a", "b")
    assert [send(prefixes, "a", TEXT[:length]) for length in (40, 40, 100, 3)] == [0, 40, 40, 0]
    assert send(prefixes, "b", TEXT[:40]) == 0


def test_middle_without_beginning_is_not_known():
    prefixes = index("a")
    send(prefixes, "a", TEXT[:80])
    assert found(prefixes, b"z" * 8 + TEXT[8:80]) == {}


@pytest.mark.parametrize("prompt", [b"", TEXT[:7]])
def test_prompt_shorter_than_a_block_is_not_known(prompt: bytes):
    prefixes = index("a")
    assert send(prefixes, "a", prompt) == 0
    assert found(prefixes, prompt) == {}


def test_tail_goes_before_head_and_old_before_new():
    prefixes = index("a", limit_bytes=80)
    send(prefixes, "a", TEXT[:80])
    send(prefixes, "a", TEXT[1000:1040])
    assert found(prefixes, TEXT[:80]) == {"a": 40}
    assert found(prefixes, TEXT[1000:1040]) == {"a": 40}


def test_prompt_beyond_limit_leaves_its_beginning():
    prefixes = index("a", limit_bytes=80)
    send(prefixes, "a", TEXT[:200])
    assert found(prefixes, TEXT[:200]) == {"a": 80}


def test_no_limit_is_no_index():
    prefixes = index("a", limit_bytes=0)
    send(prefixes, "a", TEXT[:200])
    assert found(prefixes, TEXT[:200]) == {}


def test_long_prompt_takes_few_blocks_and_is_known_nearly_whole():
    prefixes = index("a", block_bytes=256, limit_bytes=1_000_000)
    send(prefixes, "a", TEXT)
    assert len(prefixes.chain(TEXT)) <= BLOCKS
    assert 0.97 * len(TEXT) <= found(prefixes, TEXT + b"more")["a"] <= len(TEXT)


def test_removed_owner_is_forgotten_and_its_place_used_again():
    prefixes = index("a", "b")
    send(prefixes, "a", TEXT[:80])
    send(prefixes, "b", TEXT[:40])
    prefixes.keep(["b", "c"])
    assert found(prefixes, TEXT[:80]) == {"b": 40}
    send(prefixes, "c", TEXT[:16])
    assert found(prefixes, TEXT[:80]) == {"b": 40, "c": 16}


def test_index_agrees_with_plain_search():
    prefixes, chance = index("a", "b", "c", limit_bytes=10**9), random.Random(2)
    had: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
    for _ in range(300):
        prompt = b"".join(chance.choice((b"11111111", b"22222222")) for _ in range(chance.randrange(1, 9)))
        longest = {
            owner: max(8 * at for at in range(len(prompt) // 8 + 1) for p in its if p[: 8 * at] == prompt[: 8 * at])
            for owner, its in had.items()
            if its
        }
        assert found(prefixes, prompt) == {owner: length for owner, length in longest.items() if length}
        owner = chance.choice("abc")
        send(prefixes, owner, prompt)
        had[owner].append(prompt)
