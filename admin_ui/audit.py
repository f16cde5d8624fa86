"""What was changed, by whom: revisions and their events, to be read only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from admin_ui.show import column, moment, page_text
from gateway.models import AuditEvent, ConfigRevision

_ACTION_CHIPS = {"create": "success", "update": "info", "delete": "danger"}
_HIDDEN = ("api_key", "digest")  # tokens and digests are of no use to a reader


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]  # unfold is untyped
    """A table that pages show and never change."""

    actions = None
    show_full_result_count = False
    list_per_page = 50

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        answer: HttpResponse = super().change_view(
            request, object_id, form_url, {**(extra_context or {}), "show_history": False}
        )
        return answer

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    list_display = ("when", "actor", "action_chip", "kind", "object", "changed_fields", "origin", "revision_number")
    list_display_links = ("when", "object")
    list_filter = (("action", ChoicesDropdownFilter), "kind", "origin")
    list_filter_submit = True
    search_fields = ("object", "actor")
    search_help_text = "Object or actor"
    fieldsets = (
        (None, {"fields": ("when", "actor", "origin", "action", "kind", "object", "revision")}),
        ("Changes", {"fields": ("difference",)}),
    )

    @column("When", order="created_at")
    def when(self, event: AuditEvent) -> str:
        return moment(event.created_at)

    @column("Action", order="action", label=_ACTION_CHIPS)
    def action_chip(self, event: AuditEvent) -> str:
        return event.action

    @column("Fields")
    def changed_fields(self, event: AuditEvent) -> str:
        return ", ".join(event.changes)

    @column("Revision", order="revision")
    def revision_number(self, event: AuditEvent) -> int:
        return event.revision_id

    @column("Difference")
    def difference(self, event: AuditEvent) -> SafeString:
        return _difference([event])


@admin.register(ConfigRevision)
class RevisionAdmin(ReadOnlyAdmin):
    list_display = ("number", "when", "actor", "origin", "summary")
    list_filter = ("origin", "actor")
    search_fields = ("summary", "actor")
    search_help_text = "Summary or actor"
    fieldsets = (
        (None, {"fields": ("number", "when", "actor", "origin", "summary")}),
        ("Changes", {"fields": ("difference",)}),
        ("Configuration after it", {"classes": ["collapse"], "fields": ("configuration",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ConfigRevision]:
        revisions: QuerySet[ConfigRevision] = super().get_queryset(request)
        is_list = request.resolver_match is not None and str(request.resolver_match.url_name).endswith("_changelist")
        return revisions.defer("document") if is_list else revisions  # it is the whole configuration

    @column("Revision", order="id")
    def number(self, revision: ConfigRevision) -> int:
        return revision.pk

    @column("When", order="created_at")
    def when(self, revision: ConfigRevision) -> str:
        return moment(revision.created_at)

    @column("Difference")
    def difference(self, revision: ConfigRevision) -> SafeString:
        return _difference(list(revision.events.order_by("pk")[:200]))

    @column("Document")
    def configuration(self, revision: ConfigRevision) -> SafeString:
        text = yaml.safe_dump(_readable(revision.document), sort_keys=False, width=100, allow_unicode=True)
        return page_text(text)


def _difference(events: list[AuditEvent]) -> SafeString:
    """A table of fields before and after, for each object of these events."""
    shown = [(event, [_row(name, change) for name, change in event.changes.items()]) for event in events]
    return render_to_string("admin_ui/difference.html", {"events": shown})


def _row(name: str, change: Any) -> Mapping[str, str]:
    before, after = change if isinstance(change, list) else ("(secret)", "(changed)")
    return {"name": name, "before": _as_text(before), "after": _as_text(after)}


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return (
        value
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    )


def _readable(value: Any) -> Any:
    """The document without what only machines read."""
    if isinstance(value, dict):
        return {name: _masked(name, inner) for name, inner in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def _masked(name: str, value: Any) -> Any:
    is_reference = isinstance(value, str) and value.startswith(("env:", "file:"))
    return "(stored)" if name in _HIDDEN and value and not is_reference else _readable(value)
