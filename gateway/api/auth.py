"""Who may use the control API: bearers of a key with operator scope, never a browser's session.

The key is looked up in the database and not in the snapshot, so that a process without a data plane can serve the API.
"""

from __future__ import annotations

import hmac

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja.errors import HttpError
from ninja.security import HttpBearer

from gateway.models import ApiKey
from gateway.protocol.apikeys import digest_of, prefix_of

_NO_DIGEST = "0" * 64


class OperatorKey(HttpBearer):
    """Gives the key to the view; nothing when it is wrong, 403 when it is one without the scope."""

    def authenticate(self, request: HttpRequest, token: str) -> ApiKey | None:
        key = ApiKey.objects.select_related("team").filter(prefix=prefix_of(token)).first()
        expected = key.digest if key is not None else _NO_DIGEST  # an unknown prefix costs the same comparisons
        matches = [hmac.compare_digest(digest_of(token, pepper).hex(), expected) for pepper in settings.KEY_PEPPERS]
        if key is None or not any(matches):
            return None
        if key.is_disabled or (key.expires_at is not None and key.expires_at <= timezone.now()):
            return None
        if not key.is_operator:
            raise HttpError(403, "This key has no operator scope.")
        return key


def actor_of(request: HttpRequest) -> str:
    """Who is written down for an edit."""
    return f"key {request.auth}"  # type: ignore[attr-defined]  # ninja puts there what `authenticate` gave
