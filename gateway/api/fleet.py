"""Every worker with how it stands: draining or drained, healthy or not, resting until when."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from gateway.api import writing
from gateway.api.schemas import Limit, Offset, Strict
from gateway.runtime.rows import read_rows
from gateway.runtime.standings import standings

fleet = Router(tags=["workers"])


class StandingShown(Strict):
    model: str
    worker: str
    state: str = Field(description="active, draining, drained (no call of it is left) or disabled")
    health: str
    health_reason: str
    rest: str | None = Field(description="Why it is asked last, or null")
    rests_since: datetime | None
    rests_until: datetime | None


class FleetPage(Strict):
    items: list[StandingShown]
    count: int


@fleet.get("/fleet", response=FleetPage, summary="List all workers with how they stand")
def list_fleet(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    return writing.page(standings(read_rows()), limit, offset, asdict)
