"""Where would this call go, and why? The same phases as a call's up to the choice, without taking anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from gateway.pipeline.client import Headers
from gateway.pipeline.members import Members
from gateway.pipeline.needs import need_of
from gateway.pipeline.order import RoutingHeaders
from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.pool import Pool
from gateway.routing.snapshot import GroupSpec, KeySpec, PoolSpec, Snapshot
from gateway.routing.table import Table
from gateway.services.base import Service


@dataclass(frozen=True, slots=True)
class Question:
    """A would-be request. `draft` stands in for the pool that it asks for."""

    service: str
    body: bytes
    key: KeySpec
    target: PoolSpec | GroupSpec
    routing: RoutingHeaders = field(default_factory=RoutingHeaders)
    headers: Headers = ()
    conversation: str | None = None
    draft: PoolSpec | None = None


class Explainer:
    """Answers questions from the live state of this process."""

    def __init__(
        self, table: Table, services: Mapping[str, Service], members: Members, clock: Callable[[], float]
    ) -> None:
        self._table = table
        self._services = services
        self._members = members
        self._clock = clock

    def explain(self, snapshot: Snapshot, question: Question) -> dict[str, Any]:
        """The choice at each pool that would be asked, in order, and the group's walk. Raises Fault for a bad body."""
        service = self._services.get(question.service)
        if service is None:
            known = ", ".join(self._services)
            raise Fault(FaultKind.INVALID_VALUE, f"'service': expected one of {known}.", param="service")
        call = service.read(question.body)
        facts = service.facts(call)
        now = self._clock()

        def decided(pool: Pool) -> dict[str, Any]:
            need = need_of(
                call,
                pool,
                lambda: facts,
                question.routing,
                question.key,
                question.conversation,
            )
            why = pool.explain(need, now)
            return {
                "pool": pool.spec.model,
                "policy": why.policy,
                "chosen": why.chosen or None,
                "note": why.note,
                "candidates": [
                    {"worker": name, "terms": dict(zip(why.term_names, terms, strict=False))}
                    for name, terms in zip_longest(why.candidates, why.terms, fillvalue=())
                ],
                "excluded": [{"worker": name, "reason": reason} for name, reason in why.excluded],
                "left_out": why.left_out,
                "in_flight": pool.in_flight,
                "waiting": pool.waiting,
            }

        target = question.target
        if question.draft is not None:
            return {"asked": call.model, "pools": [decided(self._table.draft(question.draft))], "route": None}
        if isinstance(target, PoolSpec):
            return {"asked": call.model, "pools": [decided(self._table.pool(target))], "route": None}
        walk = self._members.plan(
            snapshot, target, question.key, question.headers, facts, question.routing, question.conversation
        )
        pools = [decided(self._table.pool(step.pool)) for step in walk.steps]
        return {"asked": call.model, "pools": pools, "route": walk.trace()}
