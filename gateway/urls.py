"""Django's side of the front door: the admin, the control API and its documentation."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path, re_path
from django.views.generic import RedirectView

from gateway.api.app import docs, routes
from gateway.api.errors import no_such_path

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    path("api/docs", docs, name="api-docs"),
    path("api/v1/", routes()),
    re_path(r"^api/", no_such_path),
]


def handler404(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse("There is no such page.", content_type="text/plain", status=404)


def handler500(request: HttpRequest) -> HttpResponse:
    return HttpResponse("The page could not be made; the log says why.", content_type="text/plain", status=500)
