"""Static files of the installed packages, served by the process itself.

WhiteNoise answers with a file that is read while it is sent. Django's ASGI handler can do that only by reading it whole
in a thread, with a warning; the files are small, so they are read at once.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]


class Assets(WhiteNoiseMiddleware):  # type: ignore[misc]
    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        if found.file is None:
            body = b""
        else:
            with found.file as file:
                body = file.read()
        response = HttpResponse(body, status=int(found.status))
        del response.headers["Content-Type"]
        for name, value in found.headers:
            response.headers[name] = value
        return response
