"""The configuration as a document, in the form that files have, and the difference of two states.

Only what differs from a default is in it, in a fixed order. Secrets are references or sealed tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml

from gateway.models import ApiKey, Group, Pool, Team, VendorAccount, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import changed_options, read_options
from gateway.runtime.fields import COLUMNS, GROUPS, column_of
from gateway.runtime.rows import Rows, read_rows

Document = dict[str, Any]
_SECRETS = {"api_key", "key", "prefix", "digest", "last4"}


@dataclass(frozen=True, slots=True)
class Item:
    """One object: `deepseek-v3/w1` of kind `worker`, with the fields that an export writes."""

    kind: str
    name: str
    origin: str
    fields: Document


Items = Mapping[tuple[str, int], Item]  # by kind and primary key: a renamed object stays itself


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one object. `fields` gives (before, after), or "changed" for what is secret."""

    action: str  # create, update, delete
    kind: str
    object: str
    fields: Mapping[str, tuple[Any, Any] | str]


def document(rows: Rows | None = None, found: Items | None = None) -> Document:
    """The whole configuration, as `apply` reads it."""
    rows = rows or read_rows()
    found = found or items(rows)
    keys: dict[int, list[Document]] = {team.pk: [] for team in rows.teams}
    for key in rows.keys:
        keys[key.team.pk].append(found["key", key.pk].fields)
    return {
        "version": 1,
        "teams": [_with(found["team", team.pk], "keys", keys[team.pk]) for team in rows.teams],
        "accounts": [found["account", account.pk].fields for account in rows.accounts],
        "pools": [
            _with(found["pool", pool.pk], "workers", [found["worker", w.pk].fields for w in rows.workers[pool.pk]])
            for pool in rows.pools
        ],
        "groups": [found["group", group.pk].fields for group in rows.groups],
    }


def export() -> str:
    """The document as YAML."""
    return yaml.safe_dump(document(), sort_keys=False, default_flow_style=False, width=120, allow_unicode=True)


def items(rows: Rows) -> Items:
    """Every object on its own, for a comparison."""
    found: dict[tuple[str, int], Item] = {}
    for team in rows.teams:
        found["team", team.pk] = Item("team", team.name, team.origin, _fields(team))
    for key in rows.keys:
        found["key", key.pk] = Item("key", f"{key.team.name}/{key.name}", key.origin, _fields(key))
    for account in rows.accounts:
        found["account", account.pk] = Item("account", account.name, account.origin, _fields(account))
    for pool in rows.pools:
        found["pool", pool.pk] = Item("pool", pool.model, pool.origin, _fields(pool))
        for worker in rows.workers[pool.pk]:
            name = f"{pool.model}/{worker.name}"
            found["worker", worker.pk] = Item("worker", name, pool.origin, _fields(worker))
    for group in rows.groups:
        found["group", group.pk] = Item("group", group.name, group.origin, _fields(group))
    return found


def diff(before: Items, after: Items) -> list[Change]:
    """What leads from one state to the other: deletions, then what was made or changed, each by kind and name."""
    changes = [_change("delete", before[at], _compare(before[at].fields, {})) for at in before.keys() - after.keys()]
    made = [_change("create", after[at], _compare({}, after[at].fields)) for at in after.keys() - before.keys()]
    for at in before.keys() & after.keys():
        old, new = before[at], after[at]
        fields = _compare(old.fields, new.fields)
        if old.origin != new.origin and new.kind != "worker":
            fields["origin"] = (old.origin, new.origin)
        if fields:
            made.append(_change("update", new, fields))
    return sorted(changes, key=_place) + sorted(made, key=_place)


def _place(change: Change) -> tuple[int, str]:
    return ["team", "key", "account", "pool", "worker", "group"].index(change.kind), change.object


def _change(action: str, item: Item, fields: Mapping[str, tuple[Any, Any] | str]) -> Change:
    return Change(action, item.kind, item.name, fields)


def _compare(old: Document, new: Document) -> dict[str, tuple[Any, Any] | str]:
    fields: dict[str, tuple[Any, Any] | str] = {}
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            fields[name] = "changed" if name in _SECRETS else (old.get(name), new.get(name))
    return fields


def _with(item: Item, name: str, inner: list[Document]) -> Document:
    return {**item.fields, name: inner} if inner else item.fields


def _fields(row: Team | ApiKey | VendorAccount | Pool | Worker | Group) -> Document:
    """The object's own fields: the first always, the others where they are not the default."""
    model, fields = type(row), {}
    for number, (name, column) in enumerate(COLUMNS[model].items()):
        value = getattr(row, column)
        if number and value == column_of(model, column).get_default():
            continue
        value = _written(name, value)
        if value != {}:  # options that say what the defaults say
            fields[name] = value
    if isinstance(row, Pool) and (options := _policy_options(row)):
        fields["policy"] = {"name": row.policy, **options}
    if isinstance(row, ApiKey):
        fields |= {"key": row.source} if row.source else _digest(row)
    return fields


def _written(name: str, value: Any) -> Any:
    if isinstance(value, VendorAccount):
        return value.name
    if isinstance(value, datetime):
        return value.isoformat()
    if name in GROUPS and isinstance(value, dict):
        return changed_options(read_options(GROUPS[name], value, name)[0])
    return value


def _policy_options(pool: Pool) -> Document:
    if pool.policy not in POLICIES or not isinstance(pool.policy_options, dict):
        return {}
    return changed_options(read_options(POLICIES[pool.policy].options, pool.policy_options, "")[0])


def _digest(key: ApiKey) -> Document:
    return {"prefix": key.prefix, "digest": key.digest, "last4": key.last4}
