"""Finished calls, to be read only: who asked which model, what came of it, and the bodies as text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter
from unfold.paginator import InfinitePaginator

from admin_ui.audit import ReadOnlyAdmin
from admin_ui.show import chip, column, moment, page_text
from admin_ui.why import attempts_table, route_table
from conversations.models import Exchange
from gateway.models import Pool, Team
from gateway.pipeline.exchange import Outcome

_OUTCOME_CHIPS = {
    "completed": "success",
    "rejected": "warning",
    "refused": "warning",
    "failed": "danger",
    "interrupted": "danger",
    "client_closed": "info",
    "error": "danger",
}


class _ColumnFilter(DropdownFilter):  # type: ignore[misc]  # unfold is untyped
    """Equality with one column; the choices come from the configuration, never from a scan of the history."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Exchange]) -> QuerySet[Exchange]:
        return queryset.filter(**{self.parameter_name: self.value()}) if self.value() else queryset


class TeamFilter(_ColumnFilter):
    title = "team"
    parameter_name = "team_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[Any, str]]:
        return list(Team.objects.values_list("pk", "name"))


class PoolFilter(_ColumnFilter):
    title = "pool"
    parameter_name = "pool"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[Any, str]]:
        return [(model, model) for model in Pool.objects.values_list("model", flat=True)]


class OutcomeFilter(_ColumnFilter):
    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[Any, str]]:
        return [(outcome.value, outcome.value.replace("_", " ")) for outcome in Outcome]


class AgeFilter(DropdownFilter):  # type: ignore[misc]
    title = "age"
    parameter_name = "within"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[Any, str]]:
        return [("1", "last hour"), ("24", "last day"), ("168", "last week")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Exchange]) -> QuerySet[Exchange]:
        hours = self.value()
        return queryset.filter(created_at__gte=timezone.now() - timedelta(hours=int(hours))) if hours else queryset


@admin.register(Exchange)
class ExchangeAdmin(ReadOnlyAdmin):
    paginator = InfinitePaginator  # no count(*) over the whole history
    list_display = ("when", "team", "key", "model", "worker", "outcome_chip", "status", "duration", "tokens")
    list_filter = (TeamFilter, PoolFilter, OutcomeFilter, AgeFilter)
    list_filter_submit = True
    search_fields = ("request_id__exact",)
    search_help_text = "Request id"
    sortable_by = ()  # the index is by time
    fieldsets = (
        (None, {"fields": ("when", "outcome_chip", "status", "error_code", "service", "model", "pool", "worker")}),
        ("Caller", {"fields": ("team", "key", "request_id", "conversation_id")}),
        (
            "Figures",
            {
                "fields": (
                    "duration",
                    "first_byte",
                    "queued",
                    "tokens",
                    "cached_tokens",
                    "usage_source",
                    "response_bytes",
                )
            },
        ),
        ("Why it went there", {"fields": ("route_shown", "attempts_shown", "is_streaming", "revision")}),
        ("Request", {"fields": ("request_text",)}),
        ("Answer", {"fields": ("response_text",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Exchange]:
        exchanges: QuerySet[Exchange] = super().get_queryset(request)
        is_list = request.resolver_match is not None and str(request.resolver_match.url_name).endswith("_changelist")
        return exchanges.defer("request_body", "response_body", "attempts", "route") if is_list else exchanges

    @column("When", order="created_at")
    def when(self, exchange: Exchange) -> str:
        return moment(exchange.created_at)

    @column("Outcome")
    def outcome_chip(self, exchange: Exchange) -> SafeString:
        return chip(exchange.outcome.replace("_", " "), _OUTCOME_CHIPS.get(exchange.outcome, ""))

    @column("Duration")
    def duration(self, exchange: Exchange) -> str:
        return _seconds(exchange.duration_s)

    @column("First byte after")
    def first_byte(self, exchange: Exchange) -> str:
        return "none" if exchange.ttft_s is None else _seconds(exchange.ttft_s)

    @column("Queued for")
    def queued(self, exchange: Exchange) -> str:
        return _seconds(exchange.queued_s)

    @column("Tokens in / out")
    def tokens(self, exchange: Exchange) -> str:
        return f"{exchange.input_tokens:,} / {exchange.output_tokens:,}"

    @column("Group")
    def route_shown(self, exchange: Exchange) -> SafeString | str:
        return route_table(exchange.route)

    @column("Attempts")
    def attempts_shown(self, exchange: Exchange) -> SafeString:
        return attempts_table(exchange.attempts)

    @column("Body")
    def request_text(self, exchange: Exchange) -> SafeString | str:
        return "not kept" if exchange.request_body is None else page_text(_readable(bytes(exchange.request_body)))

    @column("Body")
    def response_text(self, exchange: Exchange) -> SafeString | str:
        if exchange.response_body is None:
            return "not kept"
        end = "\n… (the rest was not kept)" if exchange.is_truncated else ""
        return page_text(_readable(bytes(exchange.response_body)) + end)


def _readable(body: bytes) -> str:
    """JSON with its lines broken, everything else as it is."""
    text = body.decode("utf-8", "replace")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
