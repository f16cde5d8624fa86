"""The Content-Security-Policy of every page that Django serves.

The admin's theme computes expressions in attributes (Alpine), which needs 'unsafe-eval' for its scripts and inline
styles; no inline script runs anywhere. All other pages get the strict policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

STRICT = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
ADMIN = f"{STRICT}; script-src 'self' 'unsafe-eval'"

Handler = Callable[[HttpRequest], HttpResponse]
AsyncHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]


@sync_and_async_middleware
def csp(get_response: Handler | AsyncHandler) -> Handler | AsyncHandler:
    """Middleware that adds the policy to answers that bring none of their own."""

    def mark(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        match = request.resolver_match  # set once the URL was resolved
        policy = ADMIN if match is not None and "admin" in match.app_names else STRICT
        response.headers.setdefault("Content-Security-Policy", policy)
        return response

    if iscoroutinefunction(get_response):
        serve = cast(AsyncHandler, get_response)

        async def answer_async(request: HttpRequest) -> HttpResponse:
            return mark(request, await serve(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponse:
        return mark(request, cast(Handler, get_response)(request))

    return answer
