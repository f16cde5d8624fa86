"""`manage.py export`: the configuration as a file that `apply` accepts."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from gateway.runtime.document import export


class Command(BaseCommand):
    help = "Print the configuration as YAML. Literal secrets stand in it sealed with IGW_SECRET_KEYS."
    requires_system_checks = ()

    def handle(self, **_: Any) -> None:
        self.stdout.write(export(), ending="")
