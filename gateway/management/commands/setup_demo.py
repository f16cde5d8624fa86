"""`manage.py setup_demo`: what `manage.py up` asks for at the very first start."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.runtime.builder import ConfigError
from gateway.runtime.demo import make_demo


class Command(BaseCommand):
    help = "Make a demo pool, an admin login and an API key, and print both; nothing when there is a pool or a user."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--worker", action="append", required=True, metavar="URL")

    def handle(self, *, worker: list[str], **_: Any) -> None:
        try:
            demo = make_demo(worker)
        except ConfigError as error:
            raise CommandError(str(error)) from error
        if demo:
            self.stdout.write(f"admin_password={demo.admin_password}\napi_key={demo.api_key}")
