"""Everything that goes wrong in the control API, in the one shape of errors: `{"error": {...}}`.

401 no key, a wrong one       404 no such object     422 what was sent, or what the configuration would be, is wrong;
403 a key without the scope   409 a file owns it, it     `problems` lists all of it
                                  exists, is in use  500 without detail: the log has it
A question to the live gateway fails like a call would: 400, 403, 404; 503 where none runs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import ProtectedError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.options import Problem
from gateway.runtime.builder import ConfigError
from gateway.runtime.live import NotLive

log = logging.getLogger(__name__)

View = Callable[..., HttpResponseBase]


class Conflict(Exception):
    """The request is well-formed, but what there is stands against it."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def register(api: NinjaAPI) -> None:
    """Have the API render every exception here."""
    for kind, handler in _HANDLERS.items():
        api.add_exception_handler(kind, handler)


def no_such_path(request: HttpRequest) -> HttpResponse:
    """The answer below /api/ where nothing is."""
    return _answer(FaultKind.NOT_FOUND, "There is no such path in the API.")


def with_plain_methods(view: View) -> View:
    """The view, with its 405 in the shape of errors."""

    @functools.wraps(view)  # csrf_exempt is an attribute of the view
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        if response.status_code != 405:
            return response
        allowed = response.headers["Allow"]
        refused = _answer(FaultKind.METHOD_NOT_ALLOWED, f"{request.method} is not possible here; possible: {allowed}.")
        refused.headers["Allow"] = allowed
        return refused

    return answer


def _unauthenticated(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    answer = _answer(FaultKind.UNAUTHENTICATED, "An API key is needed: Authorization: Bearer sk-igw-...")
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _http(request: HttpRequest, error: HttpError) -> HttpResponse:
    kind = FaultKind.FORBIDDEN if error.status_code == 403 else FaultKind.BAD_REQUEST
    return _answer(kind, str(error))


def _missing(request: HttpRequest, error: Http404) -> HttpResponse:
    return _answer(FaultKind.NOT_FOUND, str(error) or "There is no such object.")


def _conflict(request: HttpRequest, error: Conflict) -> HttpResponse:
    return _render(409, "invalid_request_error", error.code, str(error))


def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    return _unprocessable([Problem(_path(item["loc"]), item["msg"]) for item in error.errors])


def _unusable(request: HttpRequest, error: ConfigError) -> HttpResponse:
    if isinstance(error.__cause__, ProtectedError):
        return _render(409, "invalid_request_error", "in_use", str(error))
    return _unprocessable(error.problems)


def _fault(request: HttpRequest, fault: Fault) -> HttpResponse:
    return _answer(fault.kind, fault.message, fault.param)


def _not_live(request: HttpRequest, error: NotLive) -> HttpResponse:
    return _answer(FaultKind.STARTING, "No gateway with a configuration runs in this process.")


def _internal(request: HttpRequest, error: Exception) -> HttpResponse:
    log.error("the control API failed", exc_info=error, extra={"fields": {"path": request.path}})
    return _answer(FaultKind.INTERNAL, "The request could not be carried out.")


_HANDLERS: dict[type[Exception], Callable[[HttpRequest, Any], HttpResponse]] = {
    AuthenticationError: _unauthenticated,
    HttpError: _http,
    Http404: _missing,
    Conflict: _conflict,
    ValidationError: _invalid,
    ConfigError: _unusable,
    Fault: _fault,
    NotLive: _not_live,
    Exception: _internal,
}


def _path(location: Sequence[Any]) -> str:
    """`("body", "body", "queue", "size")` as `queue.size`; the first two name the source and our argument."""
    inner = location[2:] if location[:1] == ("body",) else location[1:]
    return ".".join(str(part) for part in inner)


def _unprocessable(problems: Sequence[Problem]) -> HttpResponse:
    message = "; ".join(str(problem) for problem in problems[:3])
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    listed = [{"path": problem.path, "message": problem.message} for problem in problems]
    return _render(
        422, "invalid_request_error", "invalid_configuration", message + more, problems[0].path or None, problems=listed
    )


def _answer(kind: FaultKind, message: str, param: str | None = None) -> HttpResponse:
    return _render(kind.value.status, kind.value.type, kind.value.code, message, param)


def _render(status: int, kind: str, code: str, message: str, param: str | None = None, **more: Any) -> HttpResponse:
    return JsonResponse(
        {"error": {"message": message, "type": kind, "param": param, "code": code, **more}}, status=status
    )
