"""Who calls: from the key in a request's headers to the key's record in the snapshot.

A missing key, an unknown one, a disabled one and an expired one get the same answer. The digest is computed for
unknown prefixes too, so that the time taken tells nothing. Keys that passed are remembered by their raw header value
until the snapshot changes.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence

from gateway.protocol.apikeys import digest_of, prefix_of
from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.headers import parse_authorization
from gateway.routing.snapshot import KeySpec, Snapshot

_REMEMBERED = 10_000
_NO_DIGEST = bytes(32)


class Authenticator:
    """Checks keys against one snapshot at a time. `peppers` are all that may have digested a key, the newest first."""

    def __init__(self, peppers: Sequence[bytes]) -> None:
        self._peppers = peppers
        self._snapshot: Snapshot | None = None
        self._known: dict[tuple[bytes, ...], KeySpec] = {}

    def principal(self, headers: Iterable[tuple[bytes, bytes]], snapshot: Snapshot, now_unix_s: float) -> KeySpec:
        """The key that the request carries; Fault UNAUTHENTICATED when it carries none that is valid now."""
        if snapshot is not self._snapshot:
            self._snapshot, self._known = snapshot, {}
        carried = tuple([value for name, value in headers if name in (b"authorization", b"x-api-key", b"api-key")])
        key = self._known.get(carried)
        if key is None:
            key = self._check(parse_authorization(headers), snapshot)
            if len(self._known) < _REMEMBERED:
                self._known[carried] = key
        if key.expires_s is not None and key.expires_s <= now_unix_s:
            raise _refused()
        return key

    def _check(self, text: str | None, snapshot: Snapshot) -> KeySpec:
        key = snapshot.keys.get(prefix_of(text)) if text else None
        expected = key.digest if key is not None else _NO_DIGEST
        matches = [hmac.compare_digest(digest_of(text or "", pepper), expected) for pepper in self._peppers]
        if key is None or not any(matches):
            raise _refused()
        return key


def _refused() -> Fault:
    return Fault(
        FaultKind.UNAUTHENTICATED,
        "A valid API key is needed: send it as 'Authorization: Bearer sk-...' or in 'x-api-key'.",
    )
