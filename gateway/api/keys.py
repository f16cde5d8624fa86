"""Teams and their API keys. The text of a key is in the answer that creates it and nowhere else."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from gateway.api import writing
from gateway.api.schemas import (
    KeyBody,
    KeyCreated,
    KeyPage,
    KeyPatch,
    KeyShown,
    Limit,
    Offset,
    TeamBody,
    TeamPage,
)
from gateway.models import ApiKey, Team
from gateway.runtime.document import Document
from gateway.runtime.entries import Entry, Reader
from gateway.runtime.fields import COLUMNS, key_path
from gateway.runtime.keys import mint
from gateway.runtime.rows import Rows, read_rows
from gateway.runtime.yamltree import Tree

teams = Router(tags=["teams"])
keys = Router(tags=["keys"])


@teams.get("", response=TeamPage, exclude_unset=True, summary="List teams")
def list_teams(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    return writing.page(read_rows().teams, limit, offset, lambda team: {"name": team.name})


@teams.post("", response={201: TeamBody}, exclude_unset=True, summary="Create a team")
def create_team(request: HttpRequest, body: TeamBody) -> Any:
    name = body.model_dump()["name"]
    with writing.api_edit(request) as change:
        writing.must_be_free(writing.find(change.before, Team, name), "team", name)
        Team.objects.create(name=name, origin=writing.ORIGIN)
    return Status(201, {"name": name})


@teams.delete("/{name}", response={204: None}, summary="Delete a team with its keys")
def delete_team(request: HttpRequest, name: str) -> Any:
    with writing.api_edit(request) as change:
        team = writing.changeable(writing.find(change.before, Team, name), "team", name)
        for key in change.before.keys:
            if key.team_id == team.pk:
                writing.changeable(key, "key", str(key))
        team.delete()
    return Status(204, None)


@keys.get("", response=KeyPage, exclude_unset=True, summary="List keys, of all teams or one")
def list_keys(request: HttpRequest, team: str | None = None, limit: Limit = 50, offset: Offset = 0) -> Any:
    rows = read_rows()
    found = [key for key in rows.keys if team is None or key.team.name == team]
    return writing.page(found, limit, offset, lambda key: _shown(rows, key))


@keys.post("", response={201: KeyCreated}, exclude_unset=True, summary="Create a key; its text is shown this once")
def create_key(request: HttpRequest, body: KeyBody) -> Any:
    fields = body.model_dump(exclude_unset=True)
    team_name, name = fields.pop("team"), fields["name"]
    with writing.api_edit(request) as change:
        team = writing.existing(writing.find(change.before, Team, team_name), "team", team_name)
        writing.must_be_free(_find(change.before, team_name, name), "key", f"{team_name}/{name}")
        key = ApiKey(team=team, origin=writing.ORIGIN)
        _take(change, key, fields)
        text = mint(key)
        key.save()
    return Status(201, {"key": text, "api_key": _read(team_name, name)})


@keys.get("/{team}/{name}", response=KeyShown, exclude_unset=True, summary="Get a key")
def get_key(request: HttpRequest, team: str, name: str) -> Any:
    return _read(team, name)


@keys.patch("/{team}/{name}", response=KeyShown, exclude_unset=True, summary="Change some fields of a key")
def change_key(request: HttpRequest, team: str, name: str, body: KeyPatch) -> Any:
    return _change(request, team, name, body.model_dump(exclude_unset=True))


@keys.post("/{team}/{name}/disable", response=KeyShown, exclude_unset=True, summary="Refuse a key from now on")
def disable_key(request: HttpRequest, team: str, name: str) -> Any:
    return _change(request, team, name, {"disabled": True})


@keys.delete("/{team}/{name}", response={204: None}, summary="Delete a key")
def delete_key(request: HttpRequest, team: str, name: str) -> Any:
    with writing.api_edit(request) as change:
        writing.changeable(_find(change.before, team, name), "key", f"{team}/{name}").delete()
    return Status(204, None)


def _change(request: HttpRequest, team: str, name: str, patch: Document) -> Document:
    with writing.api_edit(request) as change:
        key = writing.changeable(_find(change.before, team, name), "key", f"{team}/{name}")
        fields = writing.merged(writing.stored(change.before, key), patch)
        _take(change, key, {name: value for name, value in fields.items() if name in COLUMNS[ApiKey]})
        key.save()
    return _read(team, name)


def _take(change: Any, key: ApiKey, fields: Document) -> None:
    """Set the columns of a key to what the fields say, absent ones to their defaults."""
    reader = Reader(Tree(value={}))
    entry = Entry(fields["name"], key_path(key.team.name, fields["name"]), fields)
    for column, value in reader.columns(entry, ApiKey).items():
        setattr(key, column, value)
    change.problems += reader.tree.problems


def _find(rows: Rows, team: str, name: str) -> ApiKey | None:
    return next((key for key in rows.keys if key.team.name == team and key.name == name), None)


def _read(team: str, name: str) -> Document:
    rows = read_rows()
    return _shown(rows, writing.existing(_find(rows, team, name), "key", f"{team}/{name}"))


def _shown(rows: Rows, key: ApiKey) -> Document:
    fields = {name: value for name, value in writing.stored(rows, key).items() if name in COLUMNS[ApiKey]}
    origin = {"source": key.source} if key.source else {"prefix": key.prefix, "last4": key.last4}
    return {"team": key.team.name, **fields, **origin}
