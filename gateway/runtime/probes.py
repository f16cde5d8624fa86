"""Whether anybody probes the workers, for pages and the control API; the data plane follows runtime/health_board."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.models import Pool
from gateway.routing.options import HealthOptions
from gateway.runtime.health_board import STALE_S, TICK

_PATIENCE_S = 0.5  # a page waits for it

log = logging.getLogger(__name__)


def probe_age_s(redis_url: str) -> float | None:
    """Seconds since the last round of probes; None when there was none, or Redis does not say."""
    try:
        with redis.Redis.from_url(
            redis_url, socket_connect_timeout=_PATIENCE_S, socket_timeout=_PATIENCE_S, retry=Retry(NoBackoff(), 0)
        ) as client:
            tick = client.get(TICK)
    except redis.RedisError as error:
        log.warning("the time of the last probes is unknown", extra={"fields": {"reason": type(error).__name__}})
        return None
    return None if tick is None else max(0.0, time.time() - float(tick))


def is_late(age_s: float | None, pools: Iterable[Pool]) -> bool:
    """Whether the last round is longer ago than the gateways wait before they take health as unknown."""
    intervals = [
        pool.health.get("interval_s", HealthOptions().interval_s) for pool in pools if pool.health.get("enabled", True)
    ]
    return bool(intervals) and (age_s is None or age_s > max(STALE_S, 3 * min(intervals)))
