"""The workers of a pool: list, add, change, drain, activate, delete. A worker belongs to whom its pool belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest
from ninja import Router, Status

from gateway.api import writing
from gateway.api.schemas import Limit, Offset, WorkerBody, WorkerPage, WorkerPatch
from gateway.models import Pool
from gateway.routing.options import Problem
from gateway.runtime.builder import ConfigError
from gateway.runtime.document import Document

workers = Router(tags=["workers"])
Workers = list[Document]


@workers.get("/{path:model}/workers", response=WorkerPage, exclude_unset=True, summary="List the workers of a pool")
def list_workers(request: HttpRequest, model: str, limit: Limit = 50, offset: Offset = 0) -> Any:
    return writing.page(writing.read(Pool, model)["workers"], limit, offset)


@workers.post("/{path:model}/workers", response={201: WorkerBody}, exclude_unset=True, summary="Add a worker")
def add_worker(request: HttpRequest, model: str, body: WorkerBody) -> Any:
    fields = body.model_dump(exclude_unset=True)

    def add(found: Workers) -> Workers:
        same = next((worker for worker in found if worker["name"] == fields["name"]), None)
        writing.must_be_free(same, "worker", fields["name"])
        return [*found, fields]

    return Status(201, _rewrite(request, model, fields["name"], add))


@workers.patch("/{path:model}/workers/{name}", response=WorkerBody, exclude_unset=True, summary="Change a worker")
def change_worker(request: HttpRequest, model: str, name: str, body: WorkerPatch) -> Any:
    patch = body.model_dump(exclude_unset=True)
    if patch.get("name", name) != name:
        raise ConfigError([Problem("name", f"expected {name}, as in the path; names are changed in the admin")])
    return _rewrite(request, model, name, lambda found: _with(found, name, patch))


@workers.post(
    "/{path:model}/workers/{name}/drain", response=WorkerBody, exclude_unset=True, summary="Send it no new calls"
)
def drain_worker(request: HttpRequest, model: str, name: str) -> Any:
    return _rewrite(request, model, name, lambda found: _with(found, name, {"state": "draining"}))


@workers.post(
    "/{path:model}/workers/{name}/activate", response=WorkerBody, exclude_unset=True, summary="Send it calls again"
)
def activate_worker(request: HttpRequest, model: str, name: str) -> Any:
    return _rewrite(request, model, name, lambda found: _with(found, name, {"state": "active"}))


@workers.delete("/{path:model}/workers/{name}", response={204: None}, summary="Delete a worker")
def delete_worker(request: HttpRequest, model: str, name: str) -> Any:
    def without(found: Workers) -> Workers:
        _of_name(found, name)
        return [worker for worker in found if worker["name"] != name]

    _rewrite(request, model, "", without)
    return Status(204, None)


def _rewrite(request: HttpRequest, model: str, name: str, change_list: Callable[[Workers], Workers]) -> Document:
    """Put the pool back with its list of workers changed; the worker of this name as it is then."""
    with writing.api_edit(request) as change:
        pool = writing.changeable(writing.find(change.before, Pool, model), "pool", model)
        fields = writing.stored(change.before, pool)
        writing.put(change, Pool, pool, {**fields, "workers": change_list(fields["workers"])})
    found: Workers = writing.read(Pool, model)["workers"] if name else []
    return _of_name(found, name) if name else {}


def _with(found: Workers, name: str, patch: Document) -> Workers:
    _of_name(found, name)
    return [writing.merged(worker, patch) if worker["name"] == name else worker for worker in found]


def _of_name(found: Workers, name: str) -> Document:
    worker = next((worker for worker in found if worker["name"] == name), None)
    if worker is None:
        raise Http404(f"There is no worker {name!r} in this pool.")
    return worker
