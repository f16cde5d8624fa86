"""The audit trail: what is written for an edit, and the proof that nobody rewrote it.

Each event carries an HMAC over its content, its revision's document and the event before it, under a key that is not
in the database. Changing, removing or inserting an event breaks the chain at this place; the database refuses it too
(a trigger). Events cut off at the end leave a whole chain: whoever needs to notice that keeps the head that
`verify_audit` prints.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils import timezone

from gateway.models import AuditEvent, ConfigRevision
from gateway.runtime.document import Change, Document


@dataclass(frozen=True, slots=True)
class Verdict:
    """`broken_at` is the first event that does not follow from the one before it."""

    count: int
    head: str
    broken_at: int | None


def write(actor: str, origin: str, changes: Sequence[Change], document: Document, fingerprint: str) -> ConfigRevision:
    """One revision and its events. The caller holds the lock of edits, which keeps the chain in one line."""
    revision = ConfigRevision.objects.create(
        actor=actor[:200], origin=origin[:200], summary=_summary(changes), document=document, fingerprint=fingerprint
    )
    sealed_document = _document_hash(revision)
    chain, now, events = _head(), timezone.now(), []
    for change in changes:
        event = AuditEvent(
            created_at=now,
            revision=revision,
            actor=revision.actor,
            origin=revision.origin,
            action=change.action,
            kind=change.kind,
            object=change.object,
            changes=dict(change.fields),
        )
        chain = event.chain = _link(settings.AUDIT_KEYS[0], chain, event, sealed_document)
        events.append(event)
    AuditEvent.objects.bulk_create(events)
    return revision


def verify() -> Verdict:
    """Follow the chain from the first event on; every key of IGW_SECRET_KEYS may have signed."""
    chain, count, revision_id, sealed_document = "", 0, None, b""
    for event in AuditEvent.objects.order_by("pk").iterator():
        if event.revision_id != revision_id:
            revision_id, sealed_document = event.revision_id, _document_hash(event.revision)
        links = [_link(key, chain, event, sealed_document) for key in settings.AUDIT_KEYS]
        if not any(hmac.compare_digest(link, event.chain) for link in links):
            return Verdict(count, chain, event.pk)
        chain, count = event.chain, count + 1
    return Verdict(count, chain, None)


def _head() -> str:
    return AuditEvent.objects.order_by("-pk").values_list("chain", flat=True).first() or ""


def _link(key: bytes, previous: str, event: AuditEvent, sealed_document: bytes) -> str:
    content = [
        event.created_at.isoformat(),
        event.revision_id,
        event.actor,
        event.origin,
        event.action,
        event.kind,
        event.object,
        event.changes,
    ]
    return hmac.digest(key, previous.encode() + sealed_document + _canonical(content), hashlib.sha256).hex()


def _document_hash(revision: ConfigRevision) -> bytes:
    return hashlib.sha256(_canonical([revision.fingerprint, revision.document])).digest()


def _canonical(value: Any) -> bytes:
    return json.dumps(_settled(value), sort_keys=True, separators=(",", ":")).encode()


def _settled(value: Any) -> Any:
    """As the value comes back from Postgres: it keeps no difference between 1e16 and its digits, or tuple and list."""
    if isinstance(value, dict):
        return {name: _settled(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_settled(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _summary(changes: Sequence[Change]) -> str:
    parts = [f"{change.action} {change.kind} {change.object}" for change in changes[:3]]
    more = [f"and {len(changes) - 3} more"] if len(changes) > 3 else []
    return ", ".join(parts + more)[:500]
