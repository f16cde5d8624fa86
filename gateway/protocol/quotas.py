"""What a vendor says of the caller's allowance: how much of it is used, and when it is whole again.

OpenAI's headers (platform.openai.com/docs/guides/rate-limits, read 2026-11) are `x-ratelimit-limit-requests`,
`-remaining-requests` and `-reset-requests` (`6m0s`, `120ms`), the same for tokens. Anthropic's
(docs.anthropic.com/en/api/rate-limits, read 2026-11) are `anthropic-ratelimit-requests-limit`, `-remaining` and
`-reset` (an RFC 3339 time), the same for tokens. `Retry-After` is RFC 9110 section 10.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

Headers = Iterable[tuple[bytes, bytes]]

_OPENAI = re.compile(rb"x-ratelimit-(limit|remaining|reset)-(requests|tokens)")
_ANTHROPIC = re.compile(rb"anthropic-ratelimit-(requests|tokens)-(limit|remaining|reset)")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_SECONDS = (86_400, 3600, 60, 1, 0.001)
_LONGEST_S = 31 * 86_400.0


def read_quota(headers: Headers, unix_s: float) -> tuple[float, float] | None:
    """The used share, 0 to 1, of the allowance used most, and seconds until it renews; None: nothing is said."""
    windows: dict[bytes, dict[bytes, bytes]] = {}
    for name, value in headers:
        if found := _OPENAI.fullmatch(name):
            windows.setdefault(found[2], {})[found[1]] = value
        elif found := _ANTHROPIC.fullmatch(name):
            windows.setdefault(found[1], {})[found[2]] = value
    shares = [share for window in windows.values() if (share := _share(window, unix_s)) is not None]
    return max(shares, default=None)


def read_retry_after(value: bytes, unix_s: float) -> float | None:
    """Seconds to wait, from a number or an HTTP date; None when it is neither."""
    text = value.decode("latin-1").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - unix_s)
    except (TypeError, ValueError):
        return None


def _share(window: dict[bytes, bytes], unix_s: float) -> tuple[float, float] | None:
    try:
        limit, remaining = int(window[b"limit"]), int(window[b"remaining"])
    except (KeyError, ValueError):
        return None
    if limit <= 0:
        return None
    used = min(1.0, max(0.0, 1 - remaining / limit))
    return used, min(_reset_s(window.get(b"reset", b"").decode("latin-1"), unix_s), _LONGEST_S)


def _reset_s(text: str, unix_s: float) -> float:
    parts = _DURATION.fullmatch(text)
    if text and parts is not None:
        return sum(float(part) * unit for part, unit in zip(parts.groups(), _SECONDS, strict=True) if part)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return max(0.0, (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() - unix_s)
