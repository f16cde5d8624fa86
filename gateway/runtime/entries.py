"""What a file says of one object, as values of columns; what it says wrongly, as problems with their place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models as db

from gateway.models import ApiKey, Pool, Team
from gateway.routing.options import Problem
from gateway.runtime.fields import COLUMNS, column_of
from gateway.runtime.yamltree import Tree

_VERSION = 1
_INNER = {Team: ("keys",), Pool: ("workers",), ApiKey: ("key", "prefix", "digest", "last4")}  # beside the columns
_LATER = "tokens_per_minute comes with a later release; set requests_per_minute"


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a file. `path` is its place: `pools[gpt-4o].workers[w1]`."""

    name: str
    path: str
    fields: dict[str, Any]


@dataclass(slots=True)
class Reader:
    """Reads the objects of one file. Problems go to `tree.problems`; what could not be read has its default."""

    tree: Tree

    def wrong(self, path: str, message: str) -> None:
        self.tree.problems.append(Problem(path, message))

    def root(self) -> dict[str, Any] | None:
        """The sections of the file; None when nothing in it can be read."""
        root = self.tree.value
        if not isinstance(root, dict):
            if not self.tree.problems:
                self.wrong("file", f"expected `version: {_VERSION}` and sections such as pools")
            return None
        if root.get("version") != _VERSION:
            self.wrong("version", f"expected {_VERSION}, got {root.get('version')!r}")
        self.only(root, "", ("version", "teams", "accounts", "pools", "groups"))
        return root

    def entries(self, within: dict[str, Any], section: str, model: type[db.Model], path: str = "") -> Iterator[Entry]:
        """The objects of a list, without those that have no usable name."""
        path, raw = f"{path}.{section}" if path else section, within.get(section)
        if not isinstance(raw, list):
            if raw is not None:
                self.wrong(path, f"expected a list, got {_kind(raw)}")
            return
        naming, column = next(iter(COLUMNS[model].items()))
        seen: set[str] = set()
        for position, fields in enumerate(raw):
            if not isinstance(fields, dict):
                self.wrong(f"{path}[{position}]", f"expected fields by name, got {_kind(fields)}")
                continue
            label = fields.get("model") or fields.get("name") or fields.get("id") or position
            if str(label) in seen:
                self.wrong(f"{path}[{position}]", f"{label} is listed twice")
                continue
            seen.add(str(label))
            at = f"{path}[{label}]"
            self.only(fields, at, (*COLUMNS[model], *_INNER.get(model, ())))
            name = self.value(model, column, fields.get(naming), f"{at}.{naming}")
            if name:
                yield Entry(name, at, fields)

    def only(self, fields: dict[str, Any], path: str, known: Iterable[str]) -> None:
        known = list(known)
        for name in fields:
            if name == "tokens_per_minute":
                self.wrong(_join(path, name), _LATER)
            elif name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                self.wrong(_join(path, name), f"no such field; {hint}")

    def columns(self, entry: Entry, model: type[db.Model], *apart: str) -> dict[str, Any]:
        """The values of all columns, absent fields with their defaults; fields `apart` are read by the caller."""
        return {
            column: self.value(model, column, entry.fields.get(name), f"{entry.path}.{name}")
            for name, column in COLUMNS[model].items()
            if name not in apart
        }

    def value(self, model: type[db.Model], column_name: str, given: Any, path: str) -> Any:
        column = column_of(model, column_name)
        default = column.get_default()
        if given is None:
            if not (column.blank or column.null or column.has_default()):
                self.wrong(path, "is needed")
            return default
        if isinstance(column, db.JSONField):
            return given  # the builder knows its shape
        if isinstance(column, db.DateTimeField):
            return self.time(given, path)
        wanted: type = str
        if isinstance(column, db.IntegerField):
            wanted = int
        elif isinstance(column, db.BooleanField):
            wanted = bool
        if type(given) is not wanted:
            words = {str: "text", int: "a whole number", bool: "true or false"}[wanted]
            quotes = "; put it in quotes" if wanted is str and not isinstance(given, (list, dict)) else ""
            self.wrong(path, f"expected {words}, got {_kind(given)}{quotes}")
            return default
        try:
            return column.clean(given, None)
        except ValidationError as error:
            self.wrong(path, " ".join(error.messages))
            return default

    def time(self, given: Any, path: str) -> datetime | None:
        try:
            time = datetime.fromisoformat(given if isinstance(given, str) else "")
        except ValueError:
            self.wrong(path, f"expected a date or a time such as 2027-01-31T12:00:00Z, got {given!r}")
            return None
        return time if time.tzinfo else time.replace(tzinfo=UTC)

    def policy(self, given: Any, path: str) -> dict[str, Any]:
        """A policy's name, or its name and options in one mapping."""
        if not isinstance(given, dict):
            return {"policy": self.value(Pool, "policy", given, path), "policy_options": {}}
        if given.get("name") is None:
            self.wrong(f"{path}.name", "is needed")
        options = {name: value for name, value in given.items() if name != "name"}
        return {"policy": self.value(Pool, "policy", given.get("name"), f"{path}.name"), "policy_options": options}

    def rate_limit(self, given: Any, path: str) -> dict[str, Any]:
        """Requests per minute as a number, or by this name in a mapping."""
        if isinstance(given, dict):
            self.only(given, path, ("requests_per_minute",))
            path, given = f"{path}.requests_per_minute", given.get("requests_per_minute")
        return {"requests_per_minute": self.value(Pool, "requests_per_minute", given, path)}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind(value: Any) -> str:
    """A value in words; not the value, which may be a secret."""
    names = {dict: "fields by name", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
