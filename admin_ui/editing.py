"""What all pages of configured objects share: each write is one edit, checked as a whole; a file's objects are its own.

An edit that the check refuses (ConfigError) is rolled back and shown on the form it came from. Objects that a file owns
can be looked at and taken over, which is an edit too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.decorators import action

from admin_ui.forms import CheckedForm
from gateway.routing.options import Problem
from gateway.runtime.builder import ConfigError
from gateway.runtime.edit import Edit, edit
from gateway.runtime.fields import INTERACTIVE_ORIGINS
from gateway.runtime.yamltree import is_within


def file_of(obj: Any) -> str:
    """The file that owns an object, or nothing. A worker is its pool's."""
    origin = obj.pool.origin if hasattr(obj, "pool") else obj.origin
    return "" if origin in INTERACTIVE_ORIGINS else str(origin)


def refusal(obj: Any) -> str:
    return (
        f"{obj} belongs to the file {file_of(obj)} and was not changed. "
        "Change the file, or apply it with --adopt after taking the object over here."
    )


class ConfigAdmin(ModelAdmin):  # type: ignore[misc]  # unfold is untyped
    """A configured object: its form and its actions save through runtime/edit."""

    change_form_outer_before_template = "admin_ui/owner.html"
    actions_detail: Sequence[str] = ("take_over",)
    list_per_page = 50
    readouts: Mapping[str, str] = {}  # columns that read better by another name where they cannot be changed
    warn_unsaved_form = True

    def edit(self, request: HttpRequest) -> AbstractContextManager[Edit]:
        return edit(actor=_username(request), origin="admin")

    # ---- who may: Django's permissions, and a file's objects stay as they are

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(super().has_change_permission(request, obj)) and not (obj and file_of(obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(super().has_delete_permission(request, obj)) and not (obj and file_of(obj))

    def has_take_over_permission(self, request: HttpRequest, object_id: str) -> bool:
        obj = self.get_object(request, unquote(object_id))
        return obj is not None and hasattr(obj, "origin") and bool(file_of(obj)) and self.has_change_permission(request)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return fieldsets
        return [(title, {**of, "fields": [self.readouts.get(f, f) for f in of["fields"]]}) for title, of in fieldsets]

    # ---- saving

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        obj = self.get_object(request, unquote(object_id)) if object_id else None
        if request.method == "POST" and obj is not None and file_of(obj):
            messages.error(request, refusal(obj))
            return HttpResponseRedirect(request.path)
        context = {"owning_file": file_of(obj) if obj else "", **(extra_context or {})}
        try:
            return self._view(request, object_id, form_url, context)
        except ConfigError as error:
            _problems(request).extend(error.problems)
            return self._view(request, object_id, form_url, context)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> type[CheckedForm]:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"problems": _problems(request)})

    def save_model(self, request: HttpRequest, obj: Model, form: CheckedForm, change: bool) -> None:
        """Nothing yet: `save_related` saves the object and its inlines as one edit."""

    def save_related(self, request: HttpRequest, form: CheckedForm, formsets: Any, change: bool) -> None:
        with self.edit(request) as done:
            self.write(form.instance, change)
            super().save_related(request, form, formsets, change)
        for warning in done.warnings:
            if is_within(warning.path, form.path()):
                messages.warning(request, f"{warning}.")

    def write(self, obj: Model, change: bool) -> None:
        """Save the object itself; `change` is false for a new one."""
        obj.save()

    # ---- deleting

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        with self.edit(request):
            obj.delete()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with self.edit(request):
            queryset.delete()

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        obj = self.get_object(request, unquote(object_id))
        if obj is not None and file_of(obj):
            messages.error(request, refusal(obj))
            return HttpResponseRedirect(self._change_url(object_id))
        try:
            answer: HttpResponse = super().delete_view(request, object_id, extra_context)
            return answer
        except ConfigError as error:
            messages.error(request, f"Not deleted. {_sentences(error.problems)}")
            return HttpResponseRedirect(self._change_url(object_id))

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        chosen = queryset.filter(pk__in=request.POST.getlist(helpers.ACTION_CHECKBOX_NAME))
        if request.POST.get("select_across") == "1":
            chosen = queryset
        if owned := [obj for obj in chosen if file_of(obj)]:
            messages.error(request, refusal(owned[0]))
            return HttpResponseRedirect(request.get_full_path())
        try:
            answer: HttpResponse | None = super().response_action(request, queryset)
            return answer
        except ConfigError as error:
            messages.error(request, f"Nothing was changed. {_sentences(error.problems)}")
            return HttpResponseRedirect(request.get_full_path())

    # ---- actions

    def set_column(
        self, request: HttpRequest, queryset: QuerySet[Any], column: str, value: Any, title: str, text: str
    ) -> HttpResponse | None:
        """One column of the chosen objects, after a page that asks; None when done."""
        if not request.POST.get("confirmed"):
            return self.confirm(request, title, text, list(queryset), request.POST.get("action", ""))
        with self.edit(request) as done:
            queryset.update(**{column: value})
        messages.success(request, f"{title}: {len(done.changes)} changed.")
        return None

    def confirm(
        self, request: HttpRequest, title: str, text: str, objects: Sequence[Model], action_name: str = ""
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "text": text,
            "objects": objects,
            "action_name": action_name,
            "checkbox": helpers.ACTION_CHECKBOX_NAME,
            "back": reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"),
            "media": self.media,
        }
        return TemplateResponse(request, "admin_ui/confirm.html", context)

    @action(description="Take over", url_path="take-over", permissions=["take_over"], icon="front_hand")  # type: ignore[untyped-decorator]
    def take_over(self, request: HttpRequest, object_id: str) -> HttpResponse:
        obj: Any = self.get_object(request, unquote(object_id))
        if request.method != "POST":
            text = (
                f"It belongs to the file {file_of(obj)}. After this it is edited here, "
                "and the file can be applied again only with --adopt."
            )
            return self.confirm(request, f"Take over {obj}", text, [obj])
        with self.edit(request):
            self.model._default_manager.filter(pk=obj.pk).update(origin="admin")
        messages.success(request, f"{obj} is now edited here.")
        return HttpResponseRedirect(self._change_url(object_id))

    # ---- one log: the audit events say who changed what

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:
        """Kept by runtime/edit."""

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:
        """Kept by runtime/edit."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> None:
        """Kept by runtime/edit."""

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        obj = self.get_object(request, unquote(object_id))
        if not self.has_view_or_change_permission(request, obj):
            raise PermissionDenied
        return HttpResponseRedirect(reverse("admin:gateway_auditevent_changelist", query={"q": str(obj)}))

    def _view(self, request: HttpRequest, *args: Any) -> HttpResponse:
        answer: HttpResponse = super().changeform_view(request, *args)
        return answer

    def _change_url(self, object_id: str) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[quote(unquote(object_id))])


def chooser(column: str, value: Any, title: str, text: str) -> Callable[..., HttpResponse | None]:
    """An action on chosen rows that sets a column, after a page that asks."""

    def act(admin: ConfigAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return admin.set_column(request, queryset, column, value, title, text)

    act.__name__ = title.lower().replace(" ", "_")
    return action(description=title, permissions=["change"])(act)  # type: ignore[no-any-return]


def _problems(request: HttpRequest) -> list[Problem]:
    """What the check of this request's edit found; forms made after it show that."""
    if not hasattr(request, "config_problems"):
        request.config_problems = []  # type: ignore[attr-defined]
    return request.config_problems  # type: ignore[attr-defined, no-any-return]


def _username(request: HttpRequest) -> str:
    return request.user.get_username()


def _sentences(problems: Sequence[Problem]) -> str:
    return " ".join(f"{problem}." for problem in problems)
