"""`manage.py create_key`: a new API key, its text alone on the last line of the output."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.actor import shell_actor
from gateway.models import Team
from gateway.runtime.builder import ConfigError
from gateway.runtime.edit import edit
from gateway.runtime.keys import issue_key

_ORIGIN = "admin"


class Command(BaseCommand):
    help = "Make an API key and print it, once. The team is made if there is none of this name."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--team", required=True)
        parser.add_argument("--name", required=True)
        parser.add_argument("--models", default="*", help="names, comma-separated; default: every model")
        parser.add_argument("--operator", action="store_true", help="may use the control API")
        parser.add_argument("--requests-per-minute", type=int)
        parser.add_argument("--expires", type=utc_time, help="a date or time, such as 2027-01-31 (UTC)")

    def handle(self, *, team: str, name: str, models: str, **options: Any) -> None:
        try:
            with edit(shell_actor(), _ORIGIN) as change:
                owner, _ = Team.objects.get_or_create(name=team, defaults={"origin": _ORIGIN})
                text = issue_key(
                    owner,
                    name,
                    origin=_ORIGIN,
                    models=[model.strip() for model in models.split(",") if model.strip()],
                    requests_per_minute=options["requests_per_minute"],
                    is_operator=options["operator"],
                    expires_at=options["expires"],
                )
        except ConfigError as error:
            raise CommandError(str(error)) from error
        for warning in change.warnings:
            self.stderr.write(f"warning: {warning}")
        self.stdout.write(text)


def utc_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
