"""The login form: five wrong passwords in a quarter of an hour close the door for this user from this address.

The counters are in Redis, so that they hold for all processes. Without Redis nobody is locked out, and the log says so.
A refused login and a wrong one get the same answer, whether the user exists or not.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from typing import Any

import redis
from django.conf import settings
from django.http import HttpRequest
from redis.backoff import NoBackoff
from redis.retry import Retry
from unfold.forms import AuthenticationForm

TRIES = 5
WINDOW_S = 15 * 60
_PATIENCE_S = 0.5  # a login waits for it

log = logging.getLogger(__name__)


class LoginForm(AuthenticationForm):  # type: ignore[misc]  # unfold is untyped
    """Counts a try before the password is looked at, so that tries at the same time are counted too."""

    def clean(self) -> dict[str, Any]:
        username = self.cleaned_data.get("username")
        if not username or not self.cleaned_data.get("password"):
            return super().clean()  # type: ignore[no-any-return]
        key = _counter(username, _address(self.request))
        if _count(key) > TRIES:
            log.warning(
                "a login is refused after too many tries", extra={"fields": {"address": _address(self.request)}}
            )
            raise self.get_invalid_login_error()
        cleaned = super().clean()
        _forget(key)
        return cleaned  # type: ignore[no-any-return]


def _address(request: HttpRequest) -> str:
    """The client's address; of IPv6 the network, as one client has all of a /64."""
    text = str(request.META.get("REMOTE_ADDR") or "")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(ipaddress.ip_network(f"{address}/64", strict=False)) if address.version == 6 else text


def _counter(username: str, address: str) -> str:
    """The name of the counter. What people type as a user name may be their password: it is not stored as it is."""
    text = f"{username.casefold()}\0{address}".encode()
    return "igw:login:" + hmac.digest(settings.SECRET_KEY.encode(), text, hashlib.sha256).hex()[:32]


def _count(key: str) -> int:
    """This try's number. The time starts with the first try, and anew with the one that closes the door."""
    try:
        with _client() as client:
            count = int(client.incr(key))
            if count == 1 or count == TRIES:
                client.expire(key, WINDOW_S)
            return count
    except redis.RedisError as error:
        log.warning("logins are not counted", extra={"fields": {"reason": type(error).__name__}})
        return 0


def _forget(key: str) -> None:
    try:
        with _client() as client:
            client.delete(key)
    except redis.RedisError as error:
        log.warning("logins are not counted", extra={"fields": {"reason": type(error).__name__}})


def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=_PATIENCE_S,
        socket_timeout=_PATIENCE_S,
        retry=Retry(NoBackoff(), 0),
    )
