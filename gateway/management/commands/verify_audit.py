"""`manage.py verify_audit`: whether the audit trail is as it was written."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gateway.runtime.audit import verify


class Command(BaseCommand):
    help = "Check the chain of audit events. Ends with 1 where it breaks."
    requires_system_checks = ()

    def handle(self, **_: Any) -> None:
        verdict = verify()
        if verdict.broken_at is not None:
            raise CommandError(f"broken at event {verdict.broken_at}, after {verdict.count} good ones")
        self.stdout.write(f"OK {verdict.count} events, head {verdict.head or 'none'}")
