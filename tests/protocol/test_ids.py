"""UUIDs of version 7."""

from __future__ import annotations

import random
import uuid

from gateway.protocol.ids import new_uuid7


def test_new_uuid7_holds_time_version_variant_and_random_bits() -> None:
    made = uuid.UUID(new_uuid7(1_700_000_000.5, lambda bits: 2**bits - 1))
    assert str(made) == "018bcfe5-69f4-7000-bfff-ffffffffffff"
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_new_uuid7_sorts_by_time_within_a_millisecond() -> None:
    bits = random.Random(1).getrandbits
    times_s = [1_790_000_000 + step / 1_000_000 for step in range(5000)]
    ids = [new_uuid7(now_s, bits) for now_s in times_s]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_new_uuid7_is_whole_for_any_time() -> None:
    for now_s in (0.0, 0.001, 1e9, 2**48 / 1000 - 1):
        text = new_uuid7(now_s, lambda bits: 0)
        assert uuid.UUID(text).int >> 80 == int(now_s * 4_096_000) >> 12
        assert len(text) == 36
