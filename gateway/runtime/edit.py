"""Changing the configuration: the one way, for the admin, the control API, `apply` and every command.

    with edit("alice", "admin") as change:
        Worker.objects.filter(pk=7).update(state="draining")

One edit at a time, in one transaction. At its end the whole configuration is checked; what cannot be used is rolled
back with a ConfigError that lists everything. What can be is kept with its revision and its audit events, and
every process is told on commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from django.conf import settings
from django.db import DataError, IntegrityError, OperationalError, connection, transaction
from django.db.models import ProtectedError

from gateway.models import VendorAccount, Worker
from gateway.routing.options import Problem
from gateway.routing.snapshot import Snapshot
from gateway.runtime import audit
from gateway.runtime.bell import ring
from gateway.runtime.builder import ConfigError, check
from gateway.runtime.document import Change, diff, document, items
from gateway.runtime.rows import Rows, read_rows
from gateway.runtime.secrets import SecretError, account_owner, is_sealed, reseal, worker_owner

_LOCK = 0x1647_0001  # any number, the same in every process
_LOCK_WAIT = "10s"


@dataclass(slots=True)
class Edit:
    """One running edit. Its body may add `problems`; the rest is known once it is over."""

    before: Rows
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    snapshot: Snapshot | None = None  # what the configuration would be
    revision: int | None = None  # None: nothing was to be changed, or only tried


@contextmanager
def edit(actor: str, origin: str, *, dry_run: bool = False) -> Iterator[Edit]:
    """Everything inside happens together, or not at all; with `dry_run` it never does, but `changes` are known.

    Raises ConfigError, also for what the database refuses inside (a name used twice, an account still in use).
    """
    with transaction.atomic():
        _lock()
        change = Edit(read_rows())
        before = items(change.before)  # now: the body may change the very objects
        owners = _owners(change.before)
        try:
            yield change
        except (IntegrityError, DataError, ProtectedError) as error:
            raise ConfigError([*change.problems, _refusal(error)]) from error
        _follow_renames(owners, read := read_rows())
        checked = check(read, 0)
        change.warnings, change.snapshot = checked.warnings, checked.snapshot
        if problems := [*change.problems, *checked.problems]:
            raise ConfigError(problems)
        after = items(read)
        change.changes = diff(before, after)
        if dry_run:
            transaction.set_rollback(True)
        elif change.changes:
            revision = audit.write(actor, origin, change.changes, document(read, after), checked.snapshot.fingerprint)
            change.revision = revision.pk
            transaction.on_commit(partial(ring, settings.REDIS_URL, revision.pk), robust=True)


def _lock() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_LOCK_WAIT])
        try:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        except OperationalError as error:
            raise ConfigError([Problem("", f"another edit has been running for {_LOCK_WAIT}; try again")]) from error


def _refusal(error: IntegrityError | DataError | ProtectedError) -> Problem:
    if isinstance(error, ProtectedError):
        users = ", ".join(sorted(str(row) for row in error.protected_objects))
        return Problem("", f"still in use by {users}")
    detail = getattr(getattr(error.__cause__, "diag", None), "message_detail", None)
    return Problem("", detail or "a value does not fit its column")


def _holders(rows: Rows) -> Iterator[tuple[VendorAccount | Worker, str]]:
    """The rows that hold secrets, each with the name it seals them for."""
    for account in rows.accounts:
        yield account, account_owner(account.name)
    for pool in rows.pools:
        for worker in rows.workers[pool.pk]:
            yield worker, worker_owner(pool.model, worker.name)


def _owners(rows: Rows) -> dict[tuple[type, int], str]:
    return {(type(row), row.pk): owner for row, owner in _holders(rows)}


def _follow_renames(before: dict[tuple[type, int], str], rows: Rows) -> None:
    """Seal secrets anew for rows whose name is part of their seal and has changed."""
    for row, owner in _holders(rows):
        old = before.get((type(row), row.pk), owner)
        if old != owner and is_sealed(row.secret):
            try:
                row.secret = reseal(row.secret, old, owner)
            except SecretError:
                continue  # sealed for the new name already, or wrong: the check says so
            row.save(update_fields=["secret"])
