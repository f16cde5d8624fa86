"""What a request's headers say of where it should go, and what its model name stands for.

`x-sglang-omni-route-model` and `-route-stream` are assertions about the body, which must agree. The others are
`x-igw-routing-key` (or `x-smg-routing-key`), `x-igw-target-worker` (operators only) and `x-igw-priority`, which cannot
raise a call above its key's own priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.pipeline.order import RoutingHeaders
from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.references import GROUP, find
from gateway.routing.requirement import Priority
from gateway.routing.snapshot import GroupSpec, KeySpec, PoolSpec, Snapshot
from gateway.services.base import Call

_KEY_NAMES = (b"x-igw-routing-key", b"x-smg-routing-key")
_TARGET = b"x-igw-target-worker"
_PRIORITY = b"x-igw-priority"
_ROUTE_MODEL, _ROUTE_STREAM = b"x-sglang-omni-route-model", b"x-sglang-omni-route-stream"
_NAMES = frozenset((*_KEY_NAMES, _TARGET, _PRIORITY, _ROUTE_MODEL, _ROUTE_STREAM))
_PRIORITIES = {b"interactive": Priority.INTERACTIVE, b"batch": Priority.BATCH}
_LONGEST = 512


def routing_headers(headers: Iterable[tuple[bytes, bytes]], key: KeySpec) -> RoutingHeaders:
    """The routing headers of a request. Raises Fault BAD_REQUEST or FORBIDDEN."""
    found = {name: value.strip() for name, value in headers if name in _NAMES}
    if not found:
        return _NONE[key.priority]
    for name, value in found.items():
        if len(value) > _LONGEST:
            raise Fault(FaultKind.BAD_REQUEST, f"The header {name.decode()} is longer than {_LONGEST} bytes.")
    target = found.get(_TARGET)
    if target is not None and not key.is_operator:
        raise Fault(FaultKind.FORBIDDEN, "The header x-igw-target-worker needs a key with operator scope.")
    routing_key = next((found[name] for name in _KEY_NAMES if found.get(name)), None)
    return RoutingHeaders(
        routing_key.decode("latin-1") if routing_key else None,
        target.decode("latin-1") if target else None,
        max(_priority(found.get(_PRIORITY)), key.priority),
        found.get(_ROUTE_MODEL),
        found[_ROUTE_STREAM].lower() if _ROUTE_STREAM in found else None,
    )


def check_assertions(routing: RoutingHeaders, call: Call) -> None:
    """Hold what the caller's headers assert against its body. Raises Fault BAD_REQUEST where they disagree."""
    if routing.asserted_model is not None and routing.asserted_model != call.model.encode():
        message = "The header x-sglang-omni-route-model names another model than the body."
        raise Fault(FaultKind.BAD_REQUEST, message, param="model")
    if routing.asserted_stream is not None and routing.asserted_stream != (b"true" if call.is_streaming else b"false"):
        message = "The header x-sglang-omni-route-stream says otherwise than the body."
        raise Fault(FaultKind.BAD_REQUEST, message, param="stream")


def target_of(snapshot: Snapshot, key: KeySpec, name: str) -> PoolSpec | GroupSpec:
    """What a model name stands for. Raises Fault MODEL_NOT_FOUND or MODEL_FORBIDDEN."""
    target = find(snapshot, name)
    shown = name[:200]
    if target is None:
        raise Fault(FaultKind.MODEL_NOT_FOUND, f"The model '{shown}' does not exist{_why(name)}.", param="model")
    is_allowed = key.may_use(target) if isinstance(target, PoolSpec) else key.may_use_group(target)
    if not is_allowed:
        raise Fault(FaultKind.MODEL_FORBIDDEN, f"This API key may not use the model '{shown}'.", param="model")
    return target


def usable_names(snapshot: Snapshot, key: KeySpec) -> Iterator[tuple[str, int]]:
    """The names that a key may ask for, with the time since which there are such models."""
    for name, pool in snapshot.names.items():
        if key.may_use(pool):
            yield name, pool.created_s
    for group in snapshot.groups.values():
        if key.may_use_group(group):
            yield group.name, group.created_s


def _priority(value: bytes | None) -> Priority:
    if value is None:
        return Priority.INTERACTIVE
    priority = _PRIORITIES.get(value.lower())
    if priority is None:
        raise Fault(FaultKind.BAD_REQUEST, "The header x-igw-priority is expected as interactive or batch.")
    return priority


def _why(name: str) -> str:
    head, slash, tail = name.partition("/")
    if slash and not (head and tail):
        return ": expected group/<id> or <account>/<model id>, with both parts"
    if head == GROUP and slash:
        return ": there is no enabled group of this id"
    return ""


_NONE = {priority: RoutingHeaders(priority=priority) for priority in Priority}
