"""The control API: its routes, its one way to authenticate and its one error handler.

Every route needs an operator's key. Only the description of the API, which holds nothing of this installation, is open.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver
from ninja import NinjaAPI
from ninja.openapi.docs import Swagger

from gateway.api import errors
from gateway.api.auth import OperatorKey
from gateway.api.explain import explain
from gateway.api.fleet import fleet
from gateway.api.groups import groups
from gateway.api.keys import keys, teams
from gateway.api.pools import accounts, pools
from gateway.api.status import status
from gateway.api.workers import workers

api = NinjaAPI(
    title="IGW control API",
    version="1",
    description="Configuration has the shape of the files of `manage.py apply`; absent fields have their defaults. "
    "A secret is taken and never given back: without `api_key`, PUT and PATCH keep the stored one. "
    "PATCH is a JSON merge patch (RFC 7396): null sets a field back to its default.",
    urls_namespace="api",
    docs_url=None,
    auth=OperatorKey(),
)
errors.register(api)
api.add_router("", status)
api.add_router("", explain)
api.add_router("", fleet)
api.add_router("/pools", workers)  # before the pools, whose models may have slashes in their names
api.add_router("/pools", pools)
api.add_router("/accounts", accounts)
api.add_router("/groups", groups)
api.add_router("/teams", teams)
api.add_router("/keys", keys)


def routes() -> tuple[list[URLResolver | URLPattern], str, str]:
    """The API's part of the URL configuration."""
    patterns, app_name, namespace = api.urls
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            pattern.callback = errors.with_plain_methods(pattern.callback)
    return patterns, app_name, namespace


def docs(request: HttpRequest) -> HttpResponse:
    """The pages of the documentation, which read `openapi.json`."""
    return Swagger().render_page(request, api)
