"""`manage.py apply FILE`: make the configuration what a file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.actor import shell_actor
from gateway.runtime.builder import ConfigError
from gateway.runtime.document import Change
from gateway.runtime.importer import apply_file

_SIGNS = {"create": "+", "update": "~", "delete": "-"}


class Command(BaseCommand):
    help = "Apply a configuration file: its objects become what it says, objects it no longer names are removed."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--dry-run", action="store_true", help="print the difference and change nothing")
        parser.add_argument("--adopt", action="store_true", help="take over objects that another origin made")

    def handle(self, *, file: Path, dry_run: bool, adopt: bool, **_: Any) -> None:
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
        try:
            edit = apply_file(text, file.name, shell_actor(), adopt=adopt, dry_run=dry_run)
        except ConfigError as error:
            raise CommandError(f"{error}\nNothing was changed.") from error
        for warning in edit.warnings:
            self.stderr.write(f"warning: {warning}")
        for change in edit.changes:
            self.stdout.write("\n".join(_lines(change)))
        self.stdout.write(_outcome(len(edit.changes), edit.revision))


def _lines(change: Change) -> list[str]:
    lines = [f"{_SIGNS[change.action]} {change.kind} {change.object}"]
    for name, values in change.fields.items():
        if isinstance(values, str):
            lines.append(f"    {name}: {values}")
        elif change.action == "update":
            lines.append(f"    {name}: {_shown(values[0])} -> {_shown(values[1])}")
    return lines


def _shown(value: Any) -> str:
    return "default" if value is None else repr(value)


def _outcome(changes: int, revision: int | None) -> str:
    if not changes:
        return "No difference."
    counted = f"{changes} change{'s' if changes > 1 else ''}"
    return f"{counted}, revision {revision}." if revision else f"{counted}; nothing was changed (dry run)."
