"""Checks of single values, for everything that looks at rows; what is found wrong is collected with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db.models import Model

from gateway.routing.options import Problem, read_options
from gateway.runtime.fields import COLUMNS, column_of
from gateway.runtime.secrets import SecretError, resolve

_SLUG = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(slots=True)
class Checks:
    """What was found so far; warnings hinder nothing."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def wrong(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def warn(self, path: str, message: str) -> None:
        self.warnings.append(Problem(path, message))

    def slug(self, name: str, path: str) -> None:
        if not _SLUG.fullmatch(name):
            self.wrong(path, f"{name!r} is not a name: letters, digits, - and _ (100 at most)")

    def printable(self, text: str, path: str) -> None:
        if not text.isprintable():
            self.wrong(path, f"{text!r} has characters that cannot be printed")

    def known(self, name: str, registry: Mapping[str, Any], path: str) -> bool:
        if name not in registry:
            self.wrong(path, f"{name!r} is unknown; known: {', '.join(sorted(registry))}")
        return name in registry

    def texts(self, raw: Any, path: str) -> tuple[str, ...]:
        if not isinstance(raw, list) or not all(isinstance(text, str) and text for text in raw):
            self.wrong(path, f"expected a list of names, got {raw!r}")
            return ()
        return tuple(dict.fromkeys(raw))

    def labels(self, raw: Any, path: str) -> dict[str, str]:
        if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
            self.wrong(path, f"expected texts by name, got {raw!r}")
            raw = {}
        return dict(sorted(raw.items()))

    def options(self, options: type, raw: Any, path: str) -> Any:
        """A group of declared options."""
        if not isinstance(raw, dict):
            self.wrong(path, f"expected options by name, got {raw!r}")
            raw = {}
        values: Any
        values, problems = read_options(options, raw, path)
        self.problems += problems
        return values

    def columns(self, row: Model, path: str, *names: str) -> None:
        """Bounds and choices that the models declare, for rows that no form has seen."""
        for name in names:
            column = column_of(type(row), COLUMNS[type(row)][name])
            try:
                column.clean(getattr(row, column.attname), row)
            except ValidationError as error:
                self.wrong(f"{path}.{name}", " ".join(error.messages))

    def url(self, text: str, path: str) -> None:
        if message := _wrong_url(text):
            self.wrong(path, message)

    def secret(self, stored: str, owner: str, path: str) -> str | None:
        """The secret that a stored reference or token stands for."""
        try:
            return resolve(stored, owner) if stored else None
        except SecretError as error:
            self.wrong(path, str(error))
            return None


def _wrong_url(text: str) -> str:
    """What is wrong with a base address. It is not shown, as it may hold a password."""
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "not an address such as http://10.0.0.5:30000"
    if not re.fullmatch(r"[!-~]+", text) or parts.scheme not in {"http", "https"} or not has_host:
        return "expected an address that begins with http:// or https:// and a host"
    if "@" in parts.netloc:
        return "an address holds no user name or password; use api_key"
    if "?" in text or "#" in text:
        return "an address holds no query and no fragment"
    return ""
