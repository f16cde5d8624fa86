"""Where would this request go, and why: asked of the live state of the process that answers, changing nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from django.http import Http404, HttpRequest
from ninja import Router
from pydantic import Field

from gateway.api import writing
from gateway.api.auth import actor_of
from gateway.api.schemas import PoolBody, Strict
from gateway.entry.routing import routing_headers, target_of
from gateway.models import Pool
from gateway.pipeline.explain import Explainer, Question
from gateway.routing.options import Problem
from gateway.routing.snapshot import KeyId, KeySpec, PoolSpec, Snapshot, TeamId
from gateway.runtime.builder import ConfigError
from gateway.runtime.edit import edit
from gateway.runtime.live import live

explain = Router(tags=["routing"])


class ExplainBody(Strict):
    """A would-be request."""

    request: dict[str, Any] = Field(description="The body that an app would send, with its model")
    service: str = Field("chat", description="What is asked for")
    headers: dict[str, str] = Field({}, description="Headers that an app would send, such as x-igw-routing-key")
    key: str | None = Field(None, description="As this key, team/name; absent: as an operator that may use everything")
    draft: PoolBody | None = Field(None, description="A pool as it might be, asked instead of the one it would replace")


class CandidateShown(Strict):
    worker: str
    terms: dict[str, float] = Field(description="What the policy weighed; names ending in _s are seconds")


class ExclusionShown(Strict):
    worker: str
    reason: str


class PoolChoice(Strict):
    pool: str
    policy: str
    chosen: str | None = Field(description="null: the call would wait or be refused")
    note: str
    candidates: list[CandidateShown]
    excluded: list[ExclusionShown]
    left_out: int = Field(description="Workers that are not listed")
    in_flight: int
    waiting: int


class Explanation(Strict):
    """The pools in the order in which they would be asked, with the choice at each."""

    asked: str
    pools: list[PoolChoice]
    route: dict[str, Any] | None = Field(description="The walk of a group")


@explain.post("/explain", response=Explanation, summary="Where a request would go, and why")
def explain_request(request: HttpRequest, body: ExplainBody) -> Any:
    draft = _drafted(request, body.draft) if body.draft is not None else None
    headers = [
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in body.headers.items()
    ]

    def asked(explainer: Explainer, snapshot: Snapshot) -> dict[str, Any]:
        key = _key(snapshot, body.key)
        conversation = next(
            (value.decode("latin-1") for name, value in headers if name == b"x-igw-conversation-id"), None
        )
        target = draft or target_of(snapshot, key, str(body.request.get("model", "")))
        question = Question(
            service=body.service,
            body=msgspec.json.encode(body.request),
            key=key,
            target=target,
            routing=routing_headers(headers, key),
            headers=headers,
            conversation=conversation,
            draft=draft,
        )
        return explainer.explain(snapshot, question)

    return live.ask(asked)


def _key(snapshot: Snapshot, name: str | None) -> KeySpec:
    if name is None:
        return KeySpec(KeyId(0), "operator", TeamId(0), "", "", b"", is_operator=True)
    found = next((key for key in snapshot.keys.values() if f"{key.team}/{key.name}" == name), None)
    if found is None:
        raise Http404(f"There is no key {name!r} in use.")
    return found


def _drafted(request: HttpRequest, body: Strict) -> PoolSpec:
    """The pool as it would be after this edit, which never happens. Raises ConfigError as the edit would."""
    fields = body.model_dump(exclude_unset=True)
    with edit(actor_of(request), writing.ORIGIN, dry_run=True) as change:
        row = writing.find(change.before, Pool, fields["model"])
        old = writing.stored(change.before, row) if row is not None else {}
        writing.put(change, Pool, row, writing.keeping_secrets(fields, old))
    assert change.snapshot is not None, "an edit without problems has a snapshot"
    spec = change.snapshot.pools.get(fields["model"])
    if spec is None:
        raise ConfigError([Problem("draft.enabled", "expected true: a disabled pool is asked nothing")])
    return spec
