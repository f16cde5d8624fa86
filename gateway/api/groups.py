"""Groups of models: list, get, create, replace, change, delete."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from gateway.api import writing
from gateway.api.schemas import GroupBody, GroupPage, GroupPatch, Limit, Offset
from gateway.models import Group
from gateway.runtime.rows import read_rows

groups = Router(tags=["groups"])


@groups.get("", response=GroupPage, exclude_unset=True, summary="List groups")
def list_groups(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    rows = read_rows()
    return writing.page(rows.groups, limit, offset, lambda group: writing.stored(rows, group))


@groups.post("", response={201: GroupBody}, exclude_unset=True, summary="Create a group")
def create_group(request: HttpRequest, body: GroupBody) -> Any:
    return writing.create(request, Group, body)


@groups.get("/{id}", response=GroupBody, exclude_unset=True, summary="Get a group")
def get_group(request: HttpRequest, id: str) -> Any:
    return writing.read(Group, id)


@groups.put("/{id}", response=GroupBody, exclude_unset=True, summary="Replace a group")
def replace_group(request: HttpRequest, id: str, body: GroupBody) -> Any:
    return writing.replace(request, Group, id, body)


@groups.patch("/{id}", response=GroupBody, exclude_unset=True, summary="Change some fields of a group")
def change_group(request: HttpRequest, id: str, body: GroupPatch) -> Any:
    return writing.change(request, Group, id, body)


@groups.delete("/{id}", response={204: None}, summary="Delete a group that no other group names")
def delete_group(request: HttpRequest, id: str) -> Any:
    return writing.delete(request, Group, id)
