"""Pools and vendor accounts: list, get, create, replace, change, delete."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from ninja import Router, Status

from gateway.api import writing
from gateway.api.schemas import (
    AccountBody,
    AccountPage,
    AccountPatch,
    Limit,
    Offset,
    PoolBody,
    PoolPage,
    PoolPatch,
    Strict,
)
from gateway.models import Pool, VendorAccount
from gateway.routing.options import Problem
from gateway.runtime.builder import ConfigError
from gateway.runtime.document import Document
from gateway.runtime.fields import COLUMNS
from gateway.runtime.rows import read_rows

pools = Router(tags=["pools"])
accounts = Router(tags=["accounts"])


@pools.get("", response=PoolPage, exclude_unset=True, summary="List pools")
def list_pools(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    rows = read_rows()
    return writing.page(rows.pools, limit, offset, lambda pool: writing.shown(writing.stored(rows, pool)))


@pools.post("", response={201: PoolBody}, exclude_unset=True, summary="Create a pool")
def create_pool(request: HttpRequest, body: PoolBody) -> Any:
    return Status(201, _create(request, Pool, body))


@pools.get("/{path:model}", response=PoolBody, exclude_unset=True, summary="Get a pool")
def get_pool(request: HttpRequest, model: str) -> Any:
    return writing.read(Pool, model)


@pools.put("/{path:model}", response=PoolBody, exclude_unset=True, summary="Replace a pool, its workers included")
def replace_pool(request: HttpRequest, model: str, body: PoolBody) -> Any:
    return _replace(request, Pool, model, body)


@pools.patch("/{path:model}", response=PoolBody, exclude_unset=True, summary="Change some fields of a pool")
def change_pool(request: HttpRequest, model: str, body: PoolPatch) -> Any:
    return _change(request, Pool, model, body)


@pools.delete("/{path:model}", response={204: None}, summary="Delete a pool with its workers")
def delete_pool(request: HttpRequest, model: str) -> Any:
    return _delete(request, Pool, model)


@accounts.get("", response=AccountPage, exclude_unset=True, summary="List vendor accounts")
def list_accounts(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    rows = read_rows()
    return writing.page(rows.accounts, limit, offset, lambda account: writing.shown(writing.stored(rows, account)))


@accounts.post("", response={201: AccountBody}, exclude_unset=True, summary="Create a vendor account")
def create_account(request: HttpRequest, body: AccountBody) -> Any:
    return Status(201, _create(request, VendorAccount, body))


@accounts.get("/{name}", response=AccountBody, exclude_unset=True, summary="Get a vendor account")
def get_account(request: HttpRequest, name: str) -> Any:
    return writing.read(VendorAccount, name)


@accounts.put("/{name}", response=AccountBody, exclude_unset=True, summary="Replace a vendor account")
def replace_account(request: HttpRequest, name: str, body: AccountBody) -> Any:
    return _replace(request, VendorAccount, name, body)


@accounts.patch("/{name}", response=AccountBody, exclude_unset=True, summary="Change some fields of a vendor account")
def change_account(request: HttpRequest, name: str, body: AccountPatch) -> Any:
    return _change(request, VendorAccount, name, body)


@accounts.delete("/{name}", response={204: None}, summary="Delete a vendor account that no pool uses")
def delete_account(request: HttpRequest, name: str) -> Any:
    return _delete(request, VendorAccount, name)


# ---- what both are made of


def _create(request: HttpRequest, model: type[Model], body: Strict) -> Document:
    fields = body.model_dump(exclude_unset=True)
    name = fields[_naming(model)]
    with writing.api_edit(request) as change:
        writing.must_be_free(writing.find(change.before, model, name), writing.KINDS[model], name)
        writing.put(change, model, None, fields)
    return writing.read(model, name)


def _replace(request: HttpRequest, model: type[Model], name: str, body: Strict) -> Document:
    fields = body.model_dump(exclude_unset=True)
    with writing.api_edit(request) as change:
        row = writing.changeable(writing.find(change.before, model, name), writing.KINDS[model], name)
        old = writing.stored(change.before, row)
        _put_same(change, model, row, _keeping_secrets(fields, old))
    return writing.read(model, name)


def _change(request: HttpRequest, model: type[Model], name: str, body: Strict) -> Document:
    patch = body.model_dump(exclude_unset=True)
    with writing.api_edit(request) as change:
        row = writing.changeable(writing.find(change.before, model, name), writing.KINDS[model], name)
        old = writing.stored(change.before, row)
        fields = writing.merged(old, patch)
        _put_same(change, model, row, _keeping_secrets(fields, old) if "workers" in patch else fields)
    return writing.read(model, name)


def _delete(request: HttpRequest, model: type[Model], name: str) -> Any:
    with writing.api_edit(request) as change:
        writing.changeable(writing.find(change.before, model, name), writing.KINDS[model], name).delete()
    return Status(204, None)


def _put_same(change: Any, model: type[Model], row: Any, fields: Document) -> None:
    """Put an object that keeps its name: secrets and counts hang on it."""
    naming = _naming(model)
    if fields.get(naming) != str(row):
        raise ConfigError([Problem(naming, f"expected {row}, as in the path; names are changed in the admin")])
    writing.put(change, model, row, fields)


def _keeping_secrets(fields: Document, old: Document) -> Document:
    kept = writing.keeping_secret(fields, old)
    if kept.get("workers"):
        before = {worker["name"]: worker for worker in old.get("workers", [])}
        kept = {**kept, "workers": [writing.keeping_secret(w, before.get(w["name"], {})) for w in kept["workers"]]}
    return kept


def _naming(model: type[Model]) -> str:
    return next(iter(COLUMNS[model]))
