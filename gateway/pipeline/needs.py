"""From a call that is understood to what routing needs to know of it."""

from __future__ import annotations

import functools
from collections.abc import Callable

from gateway.pipeline.order import RoutingHeaders
from gateway.routing.pool import Pool
from gateway.routing.requirement import Facts, Need, Requirement
from gateway.routing.snapshot import KeySpec
from gateway.services.base import Call


def need_of(
    call: Call,
    pool: Pool,
    read: Callable[[], Facts],
    routing: RoutingHeaders,
    key: KeySpec,
    conversation: str | None,
) -> Need:
    """What the call needs of this pool's workers; facts are read only if a worker's profile or a policy asks."""
    model = pool.spec.model
    if pool.reads_facts:
        facts = read()
        requirement = Requirement(
            service=call.service,
            model=model,
            is_streaming=call.is_streaming,
            inputs=facts.inputs,
            outputs=facts.outputs,
            content_form=facts.content_form,
            audio_format=facts.audio_format,
        )
    else:
        requirement = _plain(call.service, model, call.is_streaming)
    return Need(
        requirement,
        read,
        routing_key=routing.key,
        conversation=conversation,
        target=routing.target,
        team=key.team_id,
        priority=routing.priority,
    )


@functools.lru_cache(4096)
def _plain(service: str, model: str, is_streaming: bool) -> Requirement:
    return Requirement(service, model, is_streaming)
