"""Pools with their workers, the workers of all pools, and accounts at vendors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import AllValuesCheckboxFilter, ChoicesDropdownFilter, RelatedDropdownFilter

from admin_ui.editing import ConfigAdmin, chooser
from admin_ui.forms import (
    CompactTextarea,
    option_fields,
    option_label,
    option_readout,
    secret_text,
)
from admin_ui.groups import GroupAdmin
from admin_ui.pool_forms import (
    GROUP_TITLES,
    POLICY_TEXTS,
    WORKER_COLUMNS,
    AccountForm,
    PoolForm,
    WorkerForm,
    WorkerRowForm,
    policy_prefix,
)
from admin_ui.show import chip, column, moment
from gateway.models import Group, Pool, VendorAccount, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import OptionInfo, describe
from gateway.runtime.fields import GROUPS
from gateway.runtime.probes import is_late, probe_age_s
from gateway.runtime.rests import Resting
from gateway.runtime.standings import rests, worker_id, worker_states

_HEALTH_CHIPS = {"healthy": "success", "unhealthy": "danger", "unknown": "info"}
_STATE_CHIPS = {"active": "success", "draining": "warning", "drained": "info", "disabled": "danger"}


class _HealthShown:
    """Columns that the probes write."""

    @column("Health", order="health")
    def health_chip(self, worker: Worker) -> SafeString:
        return chip(worker.health, _HEALTH_CHIPS[worker.health])

    @column("API key")
    def api_key(self, obj: Any) -> str:
        return secret_text(obj.secret)


class _ProbesWatched:
    """Lists of what the probes watch say when nobody probes."""

    list_before_template = "admin_ui/probes.html"

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        age_s = probe_age_s(settings.REDIS_URL)
        text = ""
        if is_late(age_s, Pool.objects.filter(is_enabled=True, workers__isnull=False).distinct().only("health")):
            since = None if age_s is None else timezone.now() - timedelta(seconds=age_s)
            text = f"No probes since {moment(since)}." if since else "No probes have been seen."
        view = super().changelist_view  # type: ignore[misc]  # this class stands before an admin
        return view(request, {**(extra_context or {}), "probes_text": text})  # type: ignore[no-any-return]


class WorkerInline(_HealthShown, TabularInline):  # type: ignore[misc]
    model = Worker
    form = WorkerRowForm
    fields = ("name", "url", "weight", "max_in_flight", "upstream_model", "state", "api_key", "health_chip")
    readonly_fields = ("health_chip",)
    extra = 0
    show_change_link = True
    hide_title = True
    verbose_name_plural = "Workers"

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        formset = super().get_formset(request, obj, **kwargs)
        formset.form.problems = getattr(request, "config_problems", [])
        return formset


def _option_lines(prefix: str, options: type) -> tuple[str, ...]:
    return tuple(option_fields(options, prefix))


@admin.register(Pool)
class PoolAdmin(_ProbesWatched, ConfigAdmin):
    form = PoolForm
    ordering = ("model",)  # said here, as counting drops the order of the model
    readouts = {"aliases": "alias_names", "policy": "policy_text"}
    inlines = (WorkerInline,)
    list_display = ("model", "policy", "workers_chip", "rate_limit", "enabled", "origin")
    list_filter = (
        ("is_enabled", admin.BooleanFieldListFilter),
        ("policy", AllValuesCheckboxFilter),
        ("account", RelatedDropdownFilter),
        "origin",
    )
    list_filter_submit = True
    search_fields = ("model", "aliases", "workers__name", "workers__url")
    search_help_text = "Model, alias, worker's name or address"
    list_select_related = ("account",)
    actions = (
        chooser("is_enabled", True, "Enable pools", "They take calls again."),
        chooser(
            "is_enabled", False, "Disable pools", "Calls for these models are answered with 404; running ones finish."
        ),
    )
    conditional_fields = {
        name: f"policy == '{policy.name}'"
        for policy in POLICIES.values()
        for name in _option_lines(policy_prefix(policy.name), policy.options)
    }
    fieldsets = (
        (None, {"fields": ("model", "aliases", "is_enabled", "backend", "account", "upstream_model")}),
        (
            "Balancing",
            {
                "classes": ["tab"],
                "fields": (
                    "policy",
                    *(name for p in POLICIES.values() for name in _option_lines(policy_prefix(p.name), p.options)),
                ),
            },
        ),
        (
            "Limits",
            {
                "classes": ["tab"],
                "fields": ("requests_per_minute", "max_in_flight", *_option_lines("queue", GROUPS["queue"])),
            },
        ),
        (
            "Circuit breaker",
            {"classes": ["tab"], "fields": _option_lines("circuit_breaker", GROUPS["circuit_breaker"])},
        ),
        (
            "Retry and timeouts",
            {
                "classes": ["tab"],
                "fields": (*_option_lines("retry", GROUPS["retry"]), *_option_lines("timeouts", GROUPS["timeouts"])),
            },
        ),
        ("Health", {"classes": ["tab"], "fields": _option_lines("health", GROUPS["health"])}),
        ("History", {"classes": ["tab"], "fields": ("history", "stream_usage")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pool]:
        serving = Q(workers__state=Worker.State.ACTIVE)
        pools: QuerySet[Pool] = super().get_queryset(request)
        return pools.annotate(
            workers_total=Count("workers", distinct=True),
            workers_unknown=Count("workers", filter=serving & Q(workers__health="unknown"), distinct=True),
            workers_healthy=Count("workers", filter=serving & Q(workers__health="healthy"), distinct=True),
        )

    @column("Workers", label={"all": "success", "some": "warning", "none": "danger", "unprobed": "info"})
    def workers_chip(self, pool: Any) -> tuple[str, str]:
        if pool.account:
            return "unprobed", f"account {pool.account.name}"
        healthy, total = pool.workers_healthy, pool.workers_total
        if not healthy and pool.workers_unknown:
            return "unprobed", f"{pool.workers_unknown} of {total} not probed"
        rank = "none" if not healthy else "all" if healthy == total else "some"
        return rank, f"{healthy} of {total} healthy"

    @column("Aliases")
    def alias_names(self, pool: Pool) -> str:
        return ", ".join(pool.aliases)

    @column("Policy")
    def policy_text(self, pool: Pool) -> str:
        return POLICY_TEXTS.get(pool.policy, pool.policy)

    @column("Rate limit", order="requests_per_minute")
    def rate_limit(self, pool: Pool) -> str:
        return f"{pool.requests_per_minute:,} a minute" if pool.requests_per_minute else "none"

    @column("Enabled", order="is_enabled", label={"enabled": "success", "disabled": "danger"})
    def enabled(self, pool: Pool) -> str:
        return "enabled" if pool.is_enabled else "disabled"


def _reader(column: str, info: OptionInfo, policy: str = "") -> Callable[[Pool], str]:
    def read(pool: Pool) -> str:
        is_chosen = not policy or pool.policy == policy
        return option_readout(info, getattr(pool, column) if is_chosen else {})

    read.short_description = option_label(info, GROUP_TITLES.get(column, ""))  # type: ignore[attr-defined]
    return read


# Where a pool may only be looked at, the admin asks these for the fields that are not columns.
for _group, _options in GROUPS.items():
    for _info in describe(_options):
        setattr(PoolAdmin, f"{_group}__{_info.name}", staticmethod(_reader(_group, _info)))
for _policy in POLICIES.values():
    for _info in describe(_policy.options):
        _name = f"{policy_prefix(_policy.name)}__{_info.name}"
        setattr(PoolAdmin, _name, staticmethod(_reader("policy_options", _info, _policy.name)))


def _attach_standings(workers: list[Any]) -> None:
    """Put on each worker how it stands, asking Redis once for all of a page."""
    states, resting = worker_states(workers), rests()
    for worker in workers:
        worker.live_state, worker.live_rest = states[worker.pk], resting.get(worker_id(worker))


@admin.register(Worker)
class WorkerAdmin(_HealthShown, _ProbesWatched, ConfigAdmin):
    form = WorkerForm
    ordering = ("pool__model", "name")
    list_display = ("name", "pool", "url", "weight", "state_chip", "health_chip", "health_reason", "probed", "resting")
    list_filter = (("pool", RelatedDropdownFilter), ("state", ChoicesDropdownFilter), ("health", ChoicesDropdownFilter))
    list_filter_submit = True
    list_select_related = ("pool",)
    search_fields = ("name", "url", "pool__model")
    search_help_text = "Name, address or model"
    actions = (
        chooser("state", "draining", "Drain workers", "Running calls finish, new ones go elsewhere."),
        chooser("state", "active", "Activate workers", "They take calls again."),
        chooser("state", "disabled", "Disable workers", "They take no calls and are not probed."),
    )
    actions_detail = ()  # a worker belongs to whom its pool belongs to
    autocomplete_fields = ("pool",)
    fieldsets = (
        (None, {"fields": ("pool", "name", "url", "state", "api_key")}),
        ("Balancing", {"fields": ("weight", "max_in_flight", "upstream_model")}),
        ("What it can do", {"fields": ("profiles", "labels")}),
        ("How it stands", {"fields": ("standing", "health_chip", "health_reason", "probed", "resting")}),
    )
    readonly_fields = ("standing", "health_chip", "health_reason", "probed", "resting")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        page = super().get_changelist_instance(request)
        _attach_standings(list(page.result_list))
        return page

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Worker | None:
        worker: Worker | None = super().get_object(request, object_id, from_field)
        if worker is not None:
            _attach_standings([worker])
        return worker

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (*self.readonly_fields, "pool") if obj else self.readonly_fields

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return super().get_fieldsets(request, obj) if obj else self.fieldsets[:-1]

    def write(self, obj: Any, change: bool) -> None:
        obj.save(update_fields=WORKER_COLUMNS if change else None)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "profiles":
            kwargs["widget"] = CompactTextarea()
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @column("State", order="state", label=_STATE_CHIPS)
    def state_chip(self, worker: Any) -> str:
        return str(worker.live_state)

    @column("State now")
    def standing(self, worker: Any) -> SafeString:
        return chip(worker.live_state, _STATE_CHIPS[worker.live_state])

    @column("Rests")
    def resting(self, worker: Any) -> str:
        rest: Resting | None = worker.live_rest
        if rest is None:
            return "no"
        until = moment(datetime.fromtimestamp(rest.until_unix_s, UTC))
        return f"{rest.reason.value}, until {until}"

    @column("Since", order="health_at")
    def probed(self, worker: Worker) -> str:
        return moment(worker.health_at)


@admin.register(VendorAccount)
class AccountAdmin(ConfigAdmin):
    form = AccountForm
    ordering = ("name",)
    list_display = ("name", "backend", "base_url", "key_kind", "pools_count", "origin")
    list_filter = ("backend", "origin")
    search_fields = ("name", "base_url")
    fieldsets = ((None, {"fields": ("name", "backend", "base_url", "api_key")}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[VendorAccount]:
        accounts: QuerySet[VendorAccount] = super().get_queryset(request)
        return accounts.annotate(pool_count=Count("pools"))

    @column("API key")
    def key_kind(self, account: VendorAccount) -> str:
        return secret_text(account.secret)

    @column("API key")
    def api_key(self, account: VendorAccount) -> str:
        return secret_text(account.secret)

    @column("Pools", order="pool_count")
    def pools_count(self, account: Any) -> int:
        return int(account.pool_count)


admin.site.register(Group, GroupAdmin)
