"""Who may call and who may operate: teams, API keys, and Django's users and groups."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import RelatedDropdownFilter
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from admin_ui.editing import ConfigAdmin, chooser
from admin_ui.forms import CheckedForm, NameListField
from admin_ui.show import column, moment
from gateway.models import ApiKey, Team
from gateway.runtime.fields import COLUMNS, key_path, team_path
from gateway.runtime.keys import mint


class TeamForm(CheckedForm):
    def path(self) -> str:
        return team_path(self.instance.name)


class KeyForm(CheckedForm):
    models = NameListField(
        required=False,
        initial=["*"],
        help_text="What this key may use, separated by commas or lines: pools by name or alias, group/id, "
        "account/model-id, account/*; * is every model.",
    )

    class Meta:
        help_texts = {"expires_at": "In UTC; empty: never."}

    def path(self) -> str:
        return key_path(self.instance.team.name, self.instance.name) if self.instance.team_id else ""

    def field_of(self, name: str) -> str:
        return COLUMNS[ApiKey].get(name, name)


@admin.register(Team)
class TeamAdmin(ConfigAdmin):
    form = TeamForm
    ordering = ("name",)
    list_display = ("name", "keys_count", "created", "origin")
    list_filter = ("origin",)
    search_fields = ("name",)
    fieldsets = ((None, {"fields": ("name",)}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Team]:
        teams: QuerySet[Team] = super().get_queryset(request)
        return teams.annotate(key_count=Count("keys"))

    @column("Keys", order="key_count")
    def keys_count(self, team: Any) -> int:
        return int(team.key_count)

    @column("Created", order="created_at")
    def created(self, team: Team) -> str:
        return moment(team.created_at)


@admin.register(ApiKey)
class KeyAdmin(ConfigAdmin):
    form = KeyForm
    readouts = {"models": "model_names"}
    list_display = ("name", "team", "shown_key", "model_names", "rate_limit", "expires", "state", "origin")
    list_filter = (("team", RelatedDropdownFilter), "is_disabled", "is_operator", "origin")
    list_filter_submit = True
    list_select_related = ("team",)
    search_fields = ("name", "team__name", "prefix", "last4")
    search_help_text = "Name, team, first or last characters"
    autocomplete_fields = ("team",)
    actions = (
        chooser("is_disabled", True, "Disable keys", "Calls with them are refused within a second."),
        chooser("is_disabled", False, "Enable keys", "Calls with them are accepted again."),
    )
    fieldsets = (
        (None, {"fields": ("team", "name", "shown_key")}),
        ("What it may do", {"fields": ("models", "requests_per_minute", "priority", "is_operator")}),
        ("How long", {"fields": ("expires_at", "is_disabled")}),
    )
    readonly_fields = ("shown_key",)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj:
            return super().get_fieldsets(request, obj)
        return ((None, {"fields": ("team", "name")}), self.fieldsets[1], ("How long", {"fields": ("expires_at",)}))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A key for the control API is as mighty as a superuser, and only one of those gives it."""
        return self.readonly_fields if _is_superuser(request) else (*self.readonly_fields, "is_operator")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """With one button: the page after it shows the key, whatever was to come next."""
        one_button = {"show_save_and_add_another": False, "show_save_and_continue": False}
        answer: HttpResponse = super().add_view(request, form_url, {**(extra_context or {}), **one_button})
        return answer

    def save_related(self, request: HttpRequest, form: CheckedForm, formsets: Any, change: bool) -> None:
        if not change:
            request.new_key = mint(form.instance)  # type: ignore[attr-defined]  # shown by this answer, then gone
        super().save_related(request, form, formsets, change)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "New API key",
            "key": obj,
            "text": request.new_key,  # type: ignore[attr-defined]
        }
        return TemplateResponse(request, "admin_ui/new_key.html", context, headers={"Cache-Control": "no-store"})

    @column("Key", order="prefix")
    def shown_key(self, key: ApiKey) -> str:
        return key.source or f"sk-igw-{key.prefix}-…{key.last4}"

    @column("Models")
    def model_names(self, key: ApiKey) -> str:
        names = "all" if "*" in key.models else ", ".join(key.models[:3]) or "none"
        return f"{names} and {len(key.models) - 3} more" if len(key.models) > 3 and "*" not in key.models else names

    @column("Limit", order="requests_per_minute")
    def rate_limit(self, key: ApiKey) -> str:
        return f"{key.requests_per_minute:,} a minute" if key.requests_per_minute else "none"

    @column("Expires", order="expires_at")
    def expires(self, key: ApiKey) -> str:
        return moment(key.expires_at)

    @column("State", label={"active": "success", "operator": "info", "expired": "warning", "disabled": "danger"})
    def state(self, key: ApiKey) -> str:
        if key.is_disabled:
            return "disabled"
        if key.expires_at and key.expires_at <= timezone.now():
            return "expired"
        return "operator" if key.is_operator else "active"


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]
    """Whoever is no superuser makes none, and changes nobody's rights."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_staff", "is_superuser", "is_active", "seen")
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Dates", {"fields": ("seen", "joined")}),
    )

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_above = obj is not None and obj.is_superuser and not _is_superuser(request)
        return super().has_change_permission(request, obj) and not is_above

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_above = obj is not None and obj.is_superuser and not _is_superuser(request)
        return super().has_delete_permission(request, obj) and not is_above

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        rights = ("is_staff", "is_superuser", "groups", "user_permissions")
        return ("seen", "joined", *(() if _is_superuser(request) else rights))

    @column("Last login", order="last_login")
    def seen(self, user: User) -> str:
        return moment(user.last_login)

    @column("Joined", order="date_joined")
    def joined(self, user: User) -> str:
        return moment(user.date_joined)


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]
    """Only superusers give rights."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))
