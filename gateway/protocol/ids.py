"""Names of calls: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

from collections.abc import Callable


def new_uuid7(now_unix_s: float, random_bits: Callable[[int], int]) -> str:
    """A UUIDv7 as text (RFC 9562, section 5.7). `random_bits(n)` is a random number of n bits.

    The 12 bits after the milliseconds hold a fraction (section 6.2, method 3): ids of one millisecond keep their order.
    """
    ticks = int(now_unix_s * 4_096_000)  # 1/4096 ms
    tail = random_bits(62) | 0x8000_0000_0000_0000  # the variant
    text = f"{ticks >> 12:012x}7{ticks & 0xFFF:03x}{tail:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
