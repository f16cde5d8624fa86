"""`manage.py serve`: the gateway's processes, without stores, Celery or demo workers (those are `manage.py up`'s)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = "Serve the gateway with IGW_PROCESSES processes on IGW_HOST:IGW_PORT until SIGTERM."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--place", help="run one of the processes alone; used by the parent for its children")

    def handle(self, *args: Any, **options: Any) -> None:
        from gateway.server import serve

        status = serve(options["place"])
        if status:
            raise CommandError("a process of the gateway keeps dying; see its messages above", returncode=status)
