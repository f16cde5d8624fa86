"""How the control API changes configured objects: as a file would, one object at a time.

An object is read as the document that files have, changed there, and put back through the reader and the importer of
files: one way in, one check. What a file owns is refused; an object that was made in the admin stays of that origin.
`create`, `replace`, `change` and `delete` are all that the routes of pools, accounts and groups do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db.models import Model
from django.http import Http404, HttpRequest
from ninja import Status

from gateway.api.auth import actor_of
from gateway.api.errors import Conflict
from gateway.api.schemas import Strict
from gateway.models import ApiKey, Group, Pool, Team, VendorAccount, Worker
from gateway.routing.options import Problem
from gateway.runtime.builder import ConfigError
from gateway.runtime.document import Document, items
from gateway.runtime.edit import Edit, edit
from gateway.runtime.entries import Reader
from gateway.runtime.fields import COLUMNS, INTERACTIVE_ORIGINS
from gateway.runtime.importer import Import
from gateway.runtime.rows import Rows, read_rows
from gateway.runtime.secrets import is_reference
from gateway.runtime.yamltree import Tree

ORIGIN = "api"
_SECTIONS: dict[type[Model], str] = {VendorAccount: "accounts", Pool: "pools", Group: "groups"}
KINDS: dict[type[Model], str] = {
    VendorAccount: "account",
    Pool: "pool",
    Worker: "worker",
    Group: "group",
    Team: "team",
    ApiKey: "key",
}


def create(request: HttpRequest, model: type[Model], body: Strict) -> Any:
    fields = body.model_dump(exclude_unset=True)
    name = fields[_naming(model)]
    with api_edit(request) as change:
        must_be_free(find(change.before, model, name), KINDS[model], name)
        put(change, model, None, fields)
    return Status(201, read(model, name))


def replace(request: HttpRequest, model: type[Model], name: str, body: Strict) -> Document:
    fields = body.model_dump(exclude_unset=True)
    with api_edit(request) as change:
        row = changeable(find(change.before, model, name), KINDS[model], name)
        _put_same(change, model, row, keeping_secrets(fields, stored(change.before, row)))
    return read(model, name)


def change(request: HttpRequest, model: type[Model], name: str, body: Strict) -> Document:
    patch = body.model_dump(exclude_unset=True)
    with api_edit(request) as running:
        row = changeable(find(running.before, model, name), KINDS[model], name)
        old = stored(running.before, row)
        fields = merged(old, patch)
        _put_same(running, model, row, keeping_secrets(fields, old) if "workers" in patch else fields)
    return read(model, name)


def delete(request: HttpRequest, model: type[Model], name: str) -> Any:
    with api_edit(request) as change:
        changeable(find(change.before, model, name), KINDS[model], name).delete()
    return Status(204, None)


@contextmanager
def api_edit(request: HttpRequest) -> Iterator[Edit]:
    """An edit by the bearer of this request's key."""
    with edit(actor_of(request), ORIGIN) as change:
        yield change


def existing(row: Any, kind: str, name: str) -> Any:
    """The row; 404 when there is none."""
    if row is None:
        raise Http404(f"There is no {kind} {name!r}.")
    return row


def changeable(row: Any, kind: str, name: str) -> Any:
    """The existing row; 409 when a file owns it."""
    if existing(row, kind, name).origin not in INTERACTIVE_ORIGINS:
        raise Conflict(f"The {kind} {name!r} belongs to the file {row.origin!r}: change the file.", "owner_conflict")
    return row


def must_be_free(row: Any, kind: str, name: str) -> None:
    if row is not None:
        raise Conflict(f"There is a {kind} {name!r} already.", "already_exists")


def find(rows: Rows, model: type[Model], name: str) -> Any:
    """The account, pool, group or team of this name, or None."""
    among: Any = {VendorAccount: rows.accounts, Pool: rows.pools, Group: rows.groups, Team: rows.teams}[model]
    return next((row for row in among if str(row) == name), None)


def stored(rows: Rows, row: Any) -> Document:
    """The object as files have it, secrets as they are stored; a pool with its workers."""
    found = items(rows)
    fields = dict(found[KINDS[type(row)], row.pk].fields)
    if isinstance(row, Pool):
        fields["workers"] = [dict(found["worker", worker.pk].fields) for worker in rows.workers[row.pk]]
    return fields


def shown(fields: Document) -> Document:
    """The object without its secrets; a reference to one is shown."""
    seen = {name: value for name, value in fields.items() if name != "api_key" or is_reference(value)}
    if "workers" in seen:
        seen["workers"] = [shown(worker) for worker in seen["workers"]]
    return seen


def put(change: Edit, model: type[Model], row: Any, fields: Document) -> None:
    """Make the object what the fields say, absent ones with their defaults; `row` is it now, or None."""
    reader = Reader(Tree(value={}))
    run = Import(change.before, row.origin if row else ORIGIN, False, reader)
    section = _SECTIONS[model]
    write = {VendorAccount: run.account, Pool: run.pool, Group: run.group}[model]
    for entry in reader.entries({section: [fields]}, section, model):
        write(entry)
    change.problems += reader.tree.problems


def merged(old: Document, patch: Mapping[str, Any]) -> Document:
    """A JSON merge patch (RFC 7396): null removes, objects are merged, everything else replaces."""
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, dict) else {}, value)
        else:
            result[name] = value
    return result


def keeping_secrets(fields: Document, old: Document) -> Document:
    """The fields with the stored secrets where none is given: nobody can send back what is never shown."""
    kept = fields if "api_key" in fields or "api_key" not in old else {**fields, "api_key": old["api_key"]}
    if kept.get("workers"):
        before = {worker["name"]: worker for worker in old.get("workers", [])}
        kept = {**kept, "workers": [keeping_secrets(w, before.get(w["name"], {})) for w in kept["workers"]]}
    return kept


def read(model: type[Model], name: str) -> Document:
    """One object as the API shows it."""
    rows = read_rows()
    return shown(stored(rows, existing(find(rows, model, name), KINDS[model], name)))


def page(found: list[Any], limit: int, offset: int, show: Callable[[Any], Any] = lambda item: item) -> Document:
    return {"items": [show(item) for item in found[offset : offset + limit]], "count": len(found)}


def _put_same(change: Edit, model: type[Model], row: Any, fields: Document) -> None:
    """Put an object that keeps its name: secrets and counts hang on it."""
    naming = _naming(model)
    if fields.get(naming) != str(row):
        raise ConfigError([Problem(naming, f"expected {row}, as in the path; names are changed in the admin")])
    put(change, model, row, fields)


def _naming(model: type[Model]) -> str:
    return next(iter(COLUMNS[model]))
