"""Groups of models: their members in order, and the rules that put one first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib.admin import BooleanFieldListFilter
from django.http import HttpRequest, HttpResponse
from unfold.contrib.filters.admin import ChoicesDropdownFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from admin_ui.editing import ConfigAdmin, chooser
from admin_ui.forms import CheckedForm, ExplainedChoice, explained
from admin_ui.rows import IntentsField, MembersField, RulesField
from admin_ui.show import column
from gateway.models import Group, Pool, VendorAccount
from gateway.routing.references import GROUP
from gateway.runtime.fields import COLUMNS, group_path
from gateway.runtime.records import RULE

_STRATEGIES = {
    "order": "the first that can answer, as listed",
    "rotate": "the start moves on by one with each call",
    "weight": "by chance, as often as the weights say",
    "smart": "whose allowance renews soonest; the nearly used up ones last",
    "usage": "whoever has had the fewest tokens lately",
    "manual": "the picked one; the others stand behind it",
}
_ERROR_CLASSES = {
    "default": "the next member is asked wherever another might answer better",
    "jackdaw-strict": "only after network faults, timeouts, 429 and 5xx; any other 4xx goes to the client",
}


class GroupForm(CheckedForm):
    strategy = forms.ChoiceField(choices=explained(_STRATEGIES), widget=ExplainedChoice(), initial="order")
    members = MembersField(help_text=Group._meta.get_field("members").help_text)
    rules = RulesField(help_text=Group._meta.get_field("rules").help_text)
    intents = IntentsField(help_text=Group._meta.get_field("intents").help_text)
    error_classes = forms.ChoiceField(choices=explained(_ERROR_CLASSES), widget=ExplainedChoice(), initial="default")

    class Meta:
        widgets = {
            "picked": UnfoldAdminTextInputWidget({"list": "rules-suggestions", "autocomplete": "off"}),
            "intent_model": UnfoldAdminTextInputWidget({"list": "members-suggestions", "autocomplete": "off"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "members" in self.fields:
            self.fields["members"].widget.suggestions = list(_references(self.instance.name))

    def path(self) -> str:
        return group_path(self.instance.name)

    def field_of(self, name: str) -> str:
        return COLUMNS[Group].get(name, name)


def _references(own: str) -> Iterator[str]:
    """What a member of the group may be, the beginnings of account models included."""
    for model, aliases in Pool.objects.order_by("model").values_list("model", "aliases"):
        yield from (model, *aliases)
    yield from (
        f"{GROUP}/{name}" for name in Group.objects.order_by("name").values_list("name", flat=True) if name != own
    )
    yield from (f"{name}/" for name in VendorAccount.objects.order_by("name").values_list("name", flat=True))


class GroupAdmin(ConfigAdmin):
    form = GroupForm
    ordering = ("name",)
    readouts = {"members": "member_names", "rules": "rule_texts", "intents": "intent_texts"}
    list_display = ("name", "strategy", "member_names", "rules_count", "enabled", "origin")
    list_filter = (("is_enabled", BooleanFieldListFilter), ("strategy", ChoicesDropdownFilter), "origin")
    list_filter_submit = True
    list_before_template = "admin_ui/groups.html"
    search_fields = ("name", "members")
    search_help_text = "Id or member"
    actions = (
        chooser("is_enabled", True, "Enable groups", "They take calls again."),
        chooser(
            "is_enabled", False, "Disable groups", "Calls for these groups are answered with 404; running ones finish."
        ),
    )
    conditional_fields = {"picked": "strategy == 'manual'"}
    fieldsets = (
        (None, {"fields": ("name", "is_enabled", "strategy", "members", "picked")}),
        ("Rules", {"classes": ["tab"], "fields": ("rules", "intent_model", "intents")}),
        ("Failover", {"classes": ["tab"], "fields": ("error_classes", "max_attempts", "keeps_conversations")}),
    )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        context = {"has_groups": Group.objects.exists(), **(extra_context or {})}
        answer: HttpResponse = super().changelist_view(request, context)
        return answer

    @column("Members")
    def member_names(self, group: Group) -> str:
        names = [_member_text(member) for member in group.members]
        return f"{', '.join(names[:3])} and {len(names) - 3} more" if len(names) > 3 else ", ".join(names)

    @column("Rules")
    def rules_count(self, group: Group) -> int:
        return len(group.rules)

    @column("Rules")
    def rule_texts(self, group: Group) -> str:
        return "\n".join(_rule_text(rule) for rule in group.rules) or "none"

    @column("Intents")
    def intent_texts(self, group: Group) -> str:
        return "\n".join(f"{name}: {meaning}" for name, meaning in group.intents.items()) or "none"

    @column("Enabled", order="is_enabled", label={"enabled": "success", "disabled": "danger"})
    def enabled(self, group: Group) -> str:
        return "enabled" if group.is_enabled else "disabled"


def _member_text(member: Any) -> str:
    if not isinstance(member, dict):
        return str(member)
    return f"{member.get('ref')} (weight {member['weight']})" if "weight" in member else str(member.get("ref"))


def _rule_text(rule: dict[str, Any]) -> str:
    conditions = [
        f"{part.help}: {_words(rule[part.name])}" for part in RULE[1:] if rule.get(part.name) not in (None, [])
    ]
    return f"{rule.get('member')} first when {'; '.join(conditions) or 'anything is asked'}"


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
