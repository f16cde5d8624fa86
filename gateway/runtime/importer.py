"""Files into rows: what `apply` does.

A file owns what it made. Each object carries the origin that made it (a file's base name, `admin`, `api`): applying the
file again changes its objects to what it says now and removes those it no longer names. Objects of another origin are
left alone, and naming one is an error, unless they are to be adopted. Workers go with their pool; a key has an
origin of its own beside its team's. Whatever is wrong is listed at once with its line, and then nothing changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar

from django.db.models import Model

from gateway.models import ApiKey, Group, Pool, Team, VendorAccount, Worker
from gateway.routing.options import Problem
from gateway.runtime import keys, secrets
from gateway.runtime.builder import ConfigError
from gateway.runtime.edit import Edit, edit
from gateway.runtime.entries import Entry, Reader
from gateway.runtime.fields import INTERACTIVE_ORIGINS, account_path, team_path
from gateway.runtime.rows import Rows
from gateway.runtime.yamltree import Tree, is_within, read_tree

_DIGEST_FORM = {"prefix": r"[A-Za-z0-9_-]{1,32}", "digest": r"[0-9a-f]{64}", "last4": r".{0,4}"}

Owned = Team | ApiKey | VendorAccount | Pool | Group
OwnedRow = TypeVar("OwnedRow", Team, ApiKey, VendorAccount, Pool, Group)
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class FileProblem(Problem):
    """A problem and where in the file it is; no line when it is about something that another origin made."""

    file: str
    line: int | None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {Problem.__str__(self)}"


def apply_file(text: str, file_name: str, actor: str, *, adopt: bool = False, dry_run: bool = False) -> Edit:
    """Make the configuration what the file says of its own objects; ConfigError of FileProblems when it cannot be."""
    origin, tree = PurePath(file_name).name, read_tree(text)
    if origin in INTERACTIVE_ORIGINS or len(origin) > 200:
        raise ConfigError([FileProblem("", "this name cannot be an origin; rename the file", origin, None)])
    reader = Reader(tree)
    try:
        if (root := reader.root()) is None:
            raise ConfigError(tree.problems)
        with edit(actor, origin, dry_run=dry_run) as change:
            Import(change.before, origin, adopt, reader).all(root)
            change.problems += tree.problems
        return change
    except ConfigError as error:
        told = _without_echoes(tree, error.problems)
        placed = [FileProblem(p.path, p.message, origin, tree.line_of(p.path)) for p in told]
        placed.sort(key=lambda problem: problem.line or math.inf)
        raise ConfigError(placed) from error


def _without_echoes(tree: Tree, problems: Iterable[Problem]) -> list[Problem]:
    """All but what the check says of places that could not be read in the first place."""
    unread = [problem.path for problem in tree.problems]
    checked = [p for p in problems if not any(is_within(p.path, at) or is_within(at, p.path) for at in unread)]
    return list(dict.fromkeys([*tree.problems, *checked]))


class Import:
    """Writes entries into rows, inside an edit: `all` those of a file, or one that the control API was given."""

    def __init__(self, before: Rows, origin: str, adopt: bool, reader: Reader) -> None:
        self.before, self.origin, self.adopt, self.reader = before, origin, adopt, reader
        self.accounts = {account.name: account for account in before.accounts}
        self.pools = {pool.model: pool for pool in before.pools}
        self.groups = {group.name: group for group in before.groups}
        self.teams = {team.name: team for team in before.teams}
        self.keys = {(key.team.name, key.name): key for key in before.keys}
        self.named: set[tuple[type, int]] = set()

    def all(self, root: dict[str, Any]) -> None:
        for entry in self.reader.entries(root, "accounts", VendorAccount):
            self.account(entry)
        for entry in self.reader.entries(root, "pools", Pool):
            self.pool(entry)
        for entry in self.reader.entries(root, "groups", Group):
            self.group(entry)
        for entry in self.reader.entries(root, "teams", Team):
            self.team(entry)
        self.remove_unnamed()

    def account(self, entry: Entry) -> None:
        account = self.accounts.setdefault(entry.name, VendorAccount(origin=self.origin))
        values = self.reader.columns(entry, VendorAccount)
        values["secret"] = self.secret(values["secret"], secrets.account_owner(entry.name), account.secret, entry)
        if self.owns(account, entry):
            self.put(account, values | {"origin": self.origin})

    def pool(self, entry: Entry) -> None:
        pool, given = self.pools.setdefault(entry.name, Pool(origin=self.origin)), entry.fields
        values = self.reader.columns(entry, Pool, "policy", "rate_limit", "account")
        values |= self.reader.policy(given.get("policy"), f"{entry.path}.policy")
        values |= self.reader.rate_limit(given.get("rate_limit"), f"{entry.path}.rate_limit")
        name = given.get("account")
        values["account"] = self.accounts.get(name) if isinstance(name, str) else None
        if name is not None and values["account"] is None:
            self.reader.wrong(f"{entry.path}.account", f"there is no account {name!r}")
            values["is_enabled"] = False  # or the check would say that nobody serves it
        if not self.owns(pool, entry):
            return
        siblings = {} if pool.pk is None else {worker.name: worker for worker in self.before.workers[pool.pk]}
        self.put(pool, values | {"origin": self.origin})
        for inner in self.reader.entries(given, "workers", Worker, entry.path):
            self.worker(inner, pool, siblings.get(inner.name, Worker(pool=pool)))
        self.remove(list(siblings.values()))

    def worker(self, entry: Entry, pool: Pool, worker: Worker) -> None:
        values = self.reader.columns(entry, Worker)
        owner = secrets.worker_owner(pool.model, entry.name)
        values["secret"] = self.secret(values["secret"], owner, worker.secret, entry)
        self.put(worker, values)

    def group(self, entry: Entry) -> None:
        group = self.groups.setdefault(entry.name, Group(origin=self.origin))
        if self.owns(group, entry):
            self.put(group, self.reader.columns(entry, Group) | {"origin": self.origin})

    def team(self, entry: Entry) -> None:
        team = self.teams.setdefault(entry.name, Team(origin=self.origin))
        if self.owns(team, entry):
            self.put(team, self.reader.columns(entry, Team) | {"origin": self.origin})
            for inner in self.reader.entries(entry.fields, "keys", ApiKey, entry.path):
                self.key(inner, team)

    def key(self, entry: Entry, team: Team) -> None:
        key = self.keys.get((team.name, entry.name), ApiKey(team=team, origin=self.origin))
        values, text = self.reader.columns(entry, ApiKey), self.key_text(entry, key)
        if self.owns(key, entry) and text:
            self.put(key, values | text | {"origin": self.origin})

    def key_text(self, entry: Entry, key: ApiKey) -> dict[str, str]:
        """The columns that stand for the key's text: from the text, a reference to it, or what an export says of it."""
        given = entry.fields.get("key")
        if given is None:
            return self.key_digest(entry)
        is_reference = isinstance(given, str) and secrets.is_reference(given)
        try:
            text = secrets.resolve(given, "") if is_reference else given
        except secrets.SecretError as error:
            self.reader.wrong(f"{entry.path}.key", str(error))
            return {}
        if not isinstance(text, str) or len(text) < keys.LEAST_CHARACTERS:
            self.reader.wrong(f"{entry.path}.key", f"a key is a text of at least {keys.LEAST_CHARACTERS} characters")
            return {}
        made = ApiKey(prefix=key.prefix, digest=key.digest, last4=key.last4)
        keys.imprint(made, text, given if is_reference else "")
        return {"prefix": made.prefix, "digest": made.digest, "last4": made.last4, "source": made.source}

    def key_digest(self, entry: Entry) -> dict[str, str]:
        values = {name: entry.fields.get(name, "") for name in _DIGEST_FORM}
        if not values["digest"]:
            self.reader.wrong(f"{entry.path}.key", "is needed: env:NAME, file:PATH, or a text of 32 characters or more")
            return {}
        for name, form in _DIGEST_FORM.items():
            if not (isinstance(values[name], str) and re.fullmatch(form, values[name])):
                self.reader.wrong(f"{entry.path}.{name}", "is not as an export writes it")
                return {}
        return values | {"source": ""}

    def secret(self, given: str, owner: str, stored: str, entry: Entry) -> str:
        try:
            return secrets.store(given, owner, stored)
        except secrets.SecretError as error:
            self.reader.wrong(f"{entry.path}.api_key", str(error))
            return ""

    # ---- rows

    def owns(self, row: Owned, entry: Entry) -> bool:
        """Whether the file may change the row; it is told when it may not."""
        if row.pk is not None:
            self.named.add((type(row), row.pk))
        if row.origin == self.origin or self.adopt:
            return True
        self.reader.wrong(entry.path, f"belongs to {row.origin!r}; --adopt takes it over")
        return False

    def put(self, row: Owned | Worker, values: dict[str, Any]) -> None:
        """Write what differs, and only that: probes write to the same rows."""
        differing = [column for column, value in values.items() if getattr(row, column) != value]
        for column in differing:
            setattr(row, column, values[column])
        if row._state.adding:
            row.save()
        elif differing:
            row.save(update_fields=differing)
        self.named.add((type(row), row.pk))

    def remove_unnamed(self) -> None:
        """Remove what the file made once and does not name any more, unless others' things hang on it."""
        self.remove(self.mine(self.before.keys))
        for team in self.unnamed(self.mine(self.before.teams)):
            self.remove_unless(team, team_path(team.name), "has keys of another origin", team.keys.values_list("name"))
        self.remove(self.mine(self.before.groups))
        self.remove(self.mine(self.before.pools))
        for account in self.unnamed(self.mine(self.before.accounts)):
            users = account.pools.values_list("model")
            self.remove_unless(account, account_path(account.name), "is used by pools of another origin", users)

    def mine(self, rows: Iterable[OwnedRow]) -> list[OwnedRow]:
        return [row for row in rows if row.origin == self.origin]

    def unnamed(self, rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if (type(row), row.pk) not in self.named]

    def remove(self, rows: Iterable[Owned | Worker]) -> None:
        for row in self.unnamed(rows):
            row.delete()

    def remove_unless(self, row: Team | VendorAccount, path: str, why: str, others: Iterable[tuple[str]]) -> None:
        if names := sorted(name for (name,) in others):
            self.reader.wrong(path, f"is not in the file any more, but {why}: {', '.join(names)}")
        else:
            row.delete()
