"""The Celery application and its timetable. Beat sends one tick each half second, the fleet decides what is due.

Run one beat: `celery -A workers.app worker -B ...`, or a worker and a beat apart. A tick that waited for longer than
the time to the next one expires unread, so a worker that was away for a while does not work off old ticks.
"""

from __future__ import annotations

import os
from typing import Any

import kombu
from celery import Celery
from celery.app.amqp import AMQP

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

TICK_S = 0.5


class Connection(kombu.Connection):  # type: ignore[misc,name-defined]  # kombu has no types
    """Celery waits 2, 4, ... 30 s between two tries to reach the broker; probes must be back sooner than that."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        quick = {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 1.0}
        return super().ensure_connection(*args, **{**quick, **options})


class Broker(AMQP):  # type: ignore[misc]  # celery has no types
    Connection = Connection


app = Celery("igw", amqp=Broker, include=["workers.fleet"])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = {
    "probes": {
        "task": "workers.fleet.tick",
        "schedule": TICK_S,
        "options": {"expires": TICK_S, "queue": "probes"},
    }
}
