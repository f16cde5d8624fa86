"""The shapes that the control API takes and gives: those of configuration files, made from the same declarations.

Columns come from runtime/fields and the models, groups of options from their dataclasses. A schema refuses unknown
fields and converts nothing; what the values must be beyond their types is runtime/builder's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from django.db import models as db
from ninja import Query
from pydantic import BaseModel, ConfigDict, Field, create_model

from gateway.models import ApiKey, Group, Pool, Team, VendorAccount, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import OptionInfo, describe
from gateway.runtime.fields import COLUMNS, GROUPS
from gateway.runtime.records import MEMBER, PROFILE, RULE, Part

Limit = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def options_schema(title: str, options: type, first: dict[str, Any] | None = None) -> type[BaseModel]:
    """A group of options as a schema; every option may be left out. `first` are fields before them."""
    fields = {
        info.name: ((Literal[info.choices] if info.choices else info.type) | None, _option_field(info))
        for info in describe(options)
    }
    return _schema(title, (first or {}) | fields)


def _option_field(info: OptionInfo) -> Any:
    text = f"{info.help}, in {info.unit}" if info.unit else info.help
    return Field(info.default, description=text, ge=info.minimum, le=info.maximum)


def _record(title: str, parts: Sequence[Part]) -> type[BaseModel]:
    """A row of a JSON column."""
    fields: dict[str, Any] = {}
    for part in parts:
        kind: Any = Literal[part.choices] if part.choices else str if part.type is list else part.type
        kind = list[kind] if part.type is list else kind
        if part.is_needed:
            fields[part.name] = (kind, Field(description=part.help))
        else:
            fields[part.name] = (kind | None, Field(None, description=part.help, ge=part.minimum, le=part.maximum))
    return _schema(title, fields)


def _policy() -> Any:
    """A name, or a name with options."""
    shapes = []
    for policy in POLICIES.values():
        first = {"name": (Literal[policy.name], Field(description=policy.summary))}
        shapes.append(options_schema(f"Policy_{policy.name}", policy.options, first))
    return Union[(str, *shapes)]  # of a list


def _schema(title: str, fields: dict[str, Any]) -> type[BaseModel]:
    return create_model(title, __base__=Strict, **fields)


_SHAPES: dict[str, Any] = {
    **{name: options_schema(f"Options_{name}", options) for name, options in GROUPS.items()},
    "policy": _policy(),
    "rate_limit": Union[int, _schema("RateLimit", {"requests_per_minute": (int | None, None)})],  # noqa: UP007
    "aliases": list[str],
    "models": list[str],
    "profiles": list[_record("Profile", PROFILE)],  # type: ignore[misc]  # made while the program starts
    "labels": dict[str, str],
    "members": list[Union[str, _record("Member", MEMBER)]],  # type: ignore[misc]  # noqa: UP007
    "rules": list[_record("Rule", RULE)],  # type: ignore[misc]
    "intents": dict[str, str],
}


def _type_of(column: db.Field[Any, Any], name: str) -> Any:
    if name in _SHAPES:
        return _SHAPES[name]
    if column.choices:
        return Literal[tuple(str(value) for value, _ in column.flatchoices)]
    if isinstance(column, db.BooleanField):
        return bool
    return int if isinstance(column, db.IntegerField) else str


def _columns(model: type[db.Model], *, is_patch: bool, without: tuple[str, ...] = ()) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for position, (name, column_name) in enumerate(COLUMNS[model].items()):
        column = model._meta.get_field(column_name)
        assert isinstance(column, db.Field)
        if name in without:
            continue
        kind, text = _type_of(column, name), str(column.help_text) or None
        is_needed = not is_patch and (position == 0 or name in ("url", "base_url"))
        fields[name] = (kind, Field(description=text)) if is_needed else (kind | None, Field(None, description=text))
    return fields


def _page(name: str, item: type[BaseModel]) -> type[BaseModel]:
    fields = {"items": (list[item], ...), "count": (int, Field(description="Of all, not of this page"))}  # type: ignore[valid-type]
    return _schema(name, fields)


if TYPE_CHECKING:  # made while the program starts, which a type checker does not see
    WorkerBody: TypeAlias = Strict
    WorkerPatch: TypeAlias = Strict
    WorkerPage: TypeAlias = Strict
    PoolBody: TypeAlias = Strict
    PoolPatch: TypeAlias = Strict
    PoolPage: TypeAlias = Strict
    AccountBody: TypeAlias = Strict
    AccountPatch: TypeAlias = Strict
    AccountPage: TypeAlias = Strict
    GroupBody: TypeAlias = Strict
    GroupPatch: TypeAlias = Strict
    GroupPage: TypeAlias = Strict
    KeyBody: TypeAlias = Strict
    KeyPatch: TypeAlias = Strict
    KeyShown: TypeAlias = Strict
    KeyCreated: TypeAlias = Strict
    KeyPage: TypeAlias = Strict
    TeamBody: TypeAlias = Strict
    TeamPage: TypeAlias = Strict
else:
    WorkerBody = _schema("Worker", _columns(Worker, is_patch=False))
    WorkerPatch = _schema("WorkerPatch", _columns(Worker, is_patch=True))
    WorkerPage = _page("Workers", WorkerBody)
    _workers = {"workers": (list[WorkerBody] | None, None)}
    PoolBody = _schema("Pool", _columns(Pool, is_patch=False) | _workers)
    PoolPatch = _schema("PoolPatch", _columns(Pool, is_patch=True) | _workers)
    PoolPage = _page("Pools", PoolBody)
    AccountBody = _schema("Account", _columns(VendorAccount, is_patch=False))
    AccountPatch = _schema("AccountPatch", _columns(VendorAccount, is_patch=True))
    AccountPage = _page("Accounts", AccountBody)
    GroupBody = _schema("Group", _columns(Group, is_patch=False))
    GroupPatch = _schema("GroupPatch", _columns(Group, is_patch=True))
    GroupPage = _page("Groups", GroupBody)
    _team = {"team": (str, ...)}
    KeyBody = _schema("NewKey", _team | _columns(ApiKey, is_patch=False, without=("disabled",)))
    KeyPatch = _schema("KeyPatch", _columns(ApiKey, is_patch=True, without=("name",)))
    _shown = {
        name: (str | None, Field(None, description=text))
        for name, text in {
            "prefix": "First characters of its own part",
            "last4": "Its last characters",
            "source": "Where a file took it from",
        }.items()
    }
    KeyShown = _schema("Key", _team | _columns(ApiKey, is_patch=False) | _shown)
    KeyCreated = _schema(
        "CreatedKey", {"key": (str, Field(description="The text, shown this once")), "api_key": (KeyShown, ...)}
    )
    KeyPage = _page("Keys", KeyShown)
    TeamBody = _schema("Team", _columns(Team, is_patch=False))
    TeamPage = _page("Teams", TeamBody)


class RevisionShown(Strict):
    """One edit of the configuration."""

    revision: int
    created_at: str
    actor: str
    origin: str
    summary: str


class RevisionPage(Strict):
    items: list[RevisionShown]
    count: int


class ProblemShown(Strict):
    path: str
    message: str


class PoolStatus(Strict):
    """Workers as the probes last saw them; a pool on a vendor account has none."""

    model: str
    enabled: bool
    workers: int
    healthy: int
    unhealthy: int
    unknown: int


class Status(Strict):
    """The state of the configuration and of what serves it."""

    revision: int = Field(description="Of the newest edit")
    problems: list[ProblemShown] = Field(description="Why the configuration could not be used by this process now")
    warnings: list[ProblemShown]
    probe_age_s: float | None = Field(description="Since the last round of probes; null: none is known of")
    pools: list[PoolStatus]
