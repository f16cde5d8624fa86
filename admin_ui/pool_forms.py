"""The forms of pools, workers and accounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminSelectWidget

from admin_ui.editing import file_of, refusal
from admin_ui.forms import (
    CheckedForm,
    ExplainedChoice,
    LabelsField,
    NameListField,
    SecretField,
    explained,
    option_fields,
    option_initial,
    read_option_fields,
)
from gateway.models import Pool, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import Problem
from gateway.runtime.fields import COLUMNS, GROUPS, account_path, pool_path, worker_path
from gateway.runtime.secrets import SecretError, account_owner, store, worker_owner
from gateway.vendors.registry import ADAPTERS

WORKER_COLUMNS = tuple(COLUMNS[Worker].values())  # without what the probes write meanwhile
POLICY_TEXTS = dict(explained({policy.name: policy.summary for policy in POLICIES.values()}))
GROUP_TITLES = {"queue": "Queue"}  # of groups that share a tab with others


def policy_prefix(policy: str) -> str:
    return f"policy_{policy}"


def _declared_fields() -> dict[str, forms.Field]:
    fields: dict[str, forms.Field] = {}
    for name, options in GROUPS.items():
        fields |= option_fields(options, name, GROUP_TITLES.get(name, ""))
    for policy in POLICIES.values():
        fields |= option_fields(policy.options, policy_prefix(policy.name))
    return fields


class _BackendForm(CheckedForm):
    """A form with a choice of the dialects there are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "backend" in self.fields:
            choices = [(name, name) for name in sorted(ADAPTERS)]
            self.fields["backend"] = forms.ChoiceField(
                choices=choices, widget=UnfoldAdminSelectWidget(), help_text=self.fields["backend"].help_text
            )


class _PoolForm(_BackendForm):
    aliases = NameListField(required=False, help_text="Further names for the same pool, separated by commas or lines.")
    policy = forms.ChoiceField(
        choices=list(POLICY_TEXTS.items()),
        widget=ExplainedChoice(),
        initial=Pool._meta.get_field("policy").default,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, options in GROUPS.items():
            self.initial.update(option_initial(options, name, getattr(self.instance, name)))
        for policy in POLICIES.values():
            stored = self.instance.policy_options if policy.name == self.instance.policy else {}
            self.initial.update(option_initial(policy.options, policy_prefix(policy.name), stored))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        for name, options in GROUPS.items():
            setattr(self.instance, name, read_option_fields(options, name, cleaned))
        if policy := POLICIES.get(cleaned.get("policy", "")):
            prefix = policy_prefix(policy.name)
            self.instance.policy_options = read_option_fields(policy.options, prefix, cleaned)
        return cleaned

    def path(self) -> str:
        return pool_path(self.instance.model)

    def field_of(self, name: str) -> str:
        if name.startswith("policy."):
            return f"{policy_prefix(self.instance.policy)}__{name.removeprefix('policy.')}"
        return COLUMNS[Pool].get(name) or super().field_of(name)


PoolForm = type("PoolForm", (_PoolForm,), _declared_fields())


class _SecretForm(CheckedForm):
    """A form whose `api_key` is written, never read."""

    api_key = SecretField(label="API key", help_text="env:NAME, file:PATH or the key itself, which is kept encrypted.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "api_key" in self.fields:
            self.fields["api_key"].widget.describe(self.instance.secret)

    def owner(self) -> str:
        """Whom the secret is sealed for."""
        raise NotImplementedError

    def _post_clean(self) -> None:
        super()._post_clean()
        given = self.cleaned_data.get("api_key")
        if given is not None:
            try:
                self.instance.secret = store(given, self.owner(), self.instance.secret)
            except SecretError as error:
                self.add_error("api_key", str(error))


class AccountForm(_SecretForm, _BackendForm):
    def owner(self) -> str:
        return account_owner(self.instance.name)

    def path(self) -> str:
        return account_path(self.instance.name)


class _WorkerForm(_SecretForm):
    def owner(self) -> str:
        return worker_owner(self.model_name(), self.instance.name)

    def path(self) -> str:
        return worker_path(self.model_name(), self.instance.name)

    def model_name(self) -> str:
        pool = getattr(self.instance, "pool", None)  # none was chosen, or one that is refused
        return pool.model if pool else ""


class WorkerForm(_WorkerForm):
    labels = LabelsField(required=False, help_text="name=value, separated by commas or lines.")

    def clean_pool(self) -> Pool:
        pool: Pool = self.cleaned_data["pool"]
        if file_of(pool):
            raise ValidationError(refusal(pool))
        return pool


class WorkerRowForm(_WorkerForm):
    """A worker in its pool's form, which shows the problems that are not the worker's own."""

    def own_problems(self) -> Iterable[Problem]:
        return [problem for problem in self.problems if problem.path.startswith(f"{self.path()}.")]

    def save(self, commit: bool = True) -> Any:
        if commit and self.instance.pk:
            self.instance.save(update_fields=WORKER_COLUMNS)
            return self.instance
        return super().save(commit)
