"""Pools and vendor accounts: list, get, create, replace, change, delete."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

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
)
from gateway.models import Pool, VendorAccount
from gateway.runtime.rows import read_rows

pools = Router(tags=["pools"])
accounts = Router(tags=["accounts"])


@pools.get("", response=PoolPage, exclude_unset=True, summary="List pools")
def list_pools(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    rows = read_rows()
    return writing.page(rows.pools, limit, offset, lambda pool: writing.shown(writing.stored(rows, pool)))


@pools.post("", response={201: PoolBody}, exclude_unset=True, summary="Create a pool")
def create_pool(request: HttpRequest, body: PoolBody) -> Any:
    return writing.create(request, Pool, body)


@pools.get("/{path:model}", response=PoolBody, exclude_unset=True, summary="Get a pool")
def get_pool(request: HttpRequest, model: str) -> Any:
    return writing.read(Pool, model)


@pools.put("/{path:model}", response=PoolBody, exclude_unset=True, summary="Replace a pool, its workers included")
def replace_pool(request: HttpRequest, model: str, body: PoolBody) -> Any:
    return writing.replace(request, Pool, model, body)


@pools.patch("/{path:model}", response=PoolBody, exclude_unset=True, summary="Change some fields of a pool")
def change_pool(request: HttpRequest, model: str, body: PoolPatch) -> Any:
    return writing.change(request, Pool, model, body)


@pools.delete("/{path:model}", response={204: None}, summary="Delete a pool with its workers")
def delete_pool(request: HttpRequest, model: str) -> Any:
    return writing.delete(request, Pool, model)


@accounts.get("", response=AccountPage, exclude_unset=True, summary="List vendor accounts")
def list_accounts(request: HttpRequest, limit: Limit = 50, offset: Offset = 0) -> Any:
    rows = read_rows()
    return writing.page(rows.accounts, limit, offset, lambda account: writing.shown(writing.stored(rows, account)))


@accounts.post("", response={201: AccountBody}, exclude_unset=True, summary="Create a vendor account")
def create_account(request: HttpRequest, body: AccountBody) -> Any:
    return writing.create(request, VendorAccount, body)


@accounts.get("/{name}", response=AccountBody, exclude_unset=True, summary="Get a vendor account")
def get_account(request: HttpRequest, name: str) -> Any:
    return writing.read(VendorAccount, name)


@accounts.put("/{name}", response=AccountBody, exclude_unset=True, summary="Replace a vendor account")
def replace_account(request: HttpRequest, name: str, body: AccountBody) -> Any:
    return writing.replace(request, VendorAccount, name, body)


@accounts.patch("/{name}", response=AccountBody, exclude_unset=True, summary="Change some fields of a vendor account")
def change_account(request: HttpRequest, name: str, body: AccountPatch) -> Any:
    return writing.change(request, VendorAccount, name, body)


@accounts.delete("/{name}", response={204: None}, summary="Delete a vendor account that no pool uses")
def delete_account(request: HttpRequest, name: str) -> Any:
    return writing.delete(request, VendorAccount, name)
