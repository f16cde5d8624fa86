"""The bell: every edit rings it, every process listens (runtime/watcher). A missed ring costs one poll interval."""

from __future__ import annotations

import logging

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

CHANNEL = "igw:revision"
_PATIENCE_S = 1.0  # a form waits for it

log = logging.getLogger(__name__)


def ring(redis_url: str, revision: int) -> None:
    """Tell every process that there is a new revision. Never fails: they poll as well."""
    try:
        with redis.Redis.from_url(
            redis_url, socket_connect_timeout=_PATIENCE_S, socket_timeout=_PATIENCE_S, retry=Retry(NoBackoff(), 0)
        ) as client:
            client.publish(CHANNEL, revision)
    except redis.RedisError as error:
        log.warning(
            "the revision bell did not ring", extra={"fields": {"revision": revision, "reason": type(error).__name__}}
        )
