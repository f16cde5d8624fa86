"""Configured objects that these tests look at, each made by an edit."""

from __future__ import annotations

from typing import Any

from gateway.models import Pool, Team, Worker
from gateway.runtime.edit import edit


def make_pool(model: str = "deepseek-v3", origin: str = "admin", **columns: Any) -> Pool:
    """A pool with the worker w1, made by an edit."""
    with edit("tests", "admin"):
        pool = Pool.objects.create(model=model, origin=origin, **columns)
        Worker.objects.create(pool=pool, name="w1", url="http://127.0.0.1:9101")
    return pool


def make_team(name: str = "demo") -> Team:
    with edit("tests", "admin"):
        return Team.objects.create(name=name)
