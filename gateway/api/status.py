"""What an operator asks first: which configuration there is, whether it can be used, and who is healthy."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from ninja import Router

from gateway.api.schemas import Limit, Offset, RevisionPage, Status
from gateway.models import ConfigRevision
from gateway.routing.options import Problem
from gateway.runtime.builder import check
from gateway.runtime.document import Document
from gateway.runtime.probes import probe_age_s
from gateway.runtime.rows import newest_revision, read_rows

status = Router(tags=["status"])


@status.get("/status", response=Status, summary="State of the configuration and of what serves it")
def get_status(request: HttpRequest) -> Any:
    rows, revision = read_rows(), newest_revision()
    checked = check(rows, revision)
    pools = []
    for pool in rows.pools:
        health = Counter(worker.health for worker in rows.workers[pool.pk])
        counts = {name: health[name] for name in ("healthy", "unhealthy", "unknown")}
        pools.append({"model": pool.model, "enabled": pool.is_enabled, "workers": health.total(), **counts})
    return {
        "revision": revision,
        "problems": [_shown(problem) for problem in checked.problems],
        "warnings": [_shown(problem) for problem in checked.warnings],
        "probe_age_s": probe_age_s(settings.REDIS_URL),
        "pools": pools,
    }


@status.get("/revisions", response=RevisionPage, summary="List edits, the newest first")
def list_revisions(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    found = ConfigRevision.objects.defer("document").order_by("-pk")
    items = [
        {
            "revision": revision.pk,
            "created_at": revision.created_at.isoformat(),
            "actor": revision.actor,
            "origin": revision.origin,
            "summary": revision.summary,
        }
        for revision in found[offset : offset + limit]
    ]
    return {"items": items, "count": found.count()}


def _shown(problem: Problem) -> Document:
    return {"path": problem.path, "message": problem.message}
