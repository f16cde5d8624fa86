"""Form fields of configured objects: declared options, lists of names, labels, and secrets that are never shown.

The fields of options come from their dataclasses (routing/options, policies): nothing here repeats a default, a bound
or a help text. What is wrong with the configuration as a whole is found by runtime/edit; `CheckedForm` shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
    UnfoldBooleanWidget,
)

from gateway.routing.options import OptionInfo, Problem, describe

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Any]
else:
    _ModelForm = forms.ModelForm


_ROW = re.compile(r"(?P<field>\w+)\[(?P<row>\d+)\](?P<part>.*)")  # `rules[0].member`


class NumberWidget(UnfoldAdminTextInputWidget):  # type: ignore[misc]  # unfold is untyped
    input_type = "number"


class CompactTextarea(UnfoldAdminTextareaWidget):  # type: ignore[misc]
    """A few lines that grow with what is typed."""

    def __init__(self, attrs: Mapping[str, Any] | None = None) -> None:
        super().__init__({"rows": 2, "class": "igw-compact", **(attrs or {})})


class ExplainedChoice(UnfoldAdminRadioSelectWidget):  # type: ignore[misc]
    """Radio buttons whose labels are sentences."""

    class Media:
        css = {"all": ("admin_ui/forms.css",)}


class NameListField(forms.CharField):
    """Names, separated by commas or lines; a list without repetitions."""

    widget = CompactTextarea

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override]  # a list where CharField has text
        text = value if isinstance(value, str) else ""
        return list(
            dict.fromkeys(name for part in text.splitlines() for piece in part.split(",") if (name := piece.strip()))
        )

    def has_changed(self, initial: Any, data: Any) -> bool:
        return (initial or []) != self.to_python(data)


class LabelsField(forms.CharField):
    """`name=value`, separated by commas or lines; a dictionary."""

    widget = CompactTextarea

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> dict[str, str]:  # type: ignore[override]
        labels = {}
        for item in NameListField().to_python(value):
            name, equals, text = item.partition("=")
            if not (equals and name.strip()):
                raise ValidationError(f"{item}: name=value is expected")
            labels[name.strip()] = text.strip()
        return labels

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return (initial or {}) != self.to_python(data)
        except ValidationError:
            return True


class SecretWidget(forms.MultiWidget):
    """An empty password box whatever is stored, and with something stored a box to remove it."""

    template_name = "admin_ui/secret.html"

    def __init__(self) -> None:
        password = UnfoldAdminPasswordWidget({"autocomplete": "new-password", "placeholder": "none"})
        super().__init__({"text": password, "remove": UnfoldBooleanWidget()})
        self.is_stored = False

    def describe(self, stored: str) -> None:
        """Say in the empty box that something is stored; a reference is no secret and is named."""
        self.is_stored = bool(stored)
        if stored:
            text = f"{secret_text(stored)}, leave empty to keep"
            self.widgets[0].attrs.update(placeholder=text, title=text)

    def decompress(self, value: Any) -> list[Any]:
        return ["", False]

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, value, attrs)
        context["widget"]["is_stored"] = self.is_stored
        return context


class SecretField(forms.MultiValueField):
    """None keeps what is stored, an empty text removes it, everything else is the new secret or a reference to it."""

    widget = SecretWidget

    def __init__(self, **kwargs: Any) -> None:
        parts = (forms.CharField(required=False, max_length=16_384), forms.BooleanField(required=False))
        super().__init__(fields=parts, required=False, require_all_fields=False, **kwargs)

    def compress(self, data_list: list[Any]) -> str | None:
        text, is_removed = data_list or ("", False)
        if text and is_removed:
            raise ValidationError("Enter a new key or remove the stored one, not both.")
        return text or ("" if is_removed else None)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return any(data or ())


def explained(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Choices by name, each with its sentence."""
    return [(name, f"{name} · {text}") for name, text in texts.items()]


def secret_text(stored: str) -> str:
    """What may be shown of a stored secret: the reference, or that there is one."""
    if not stored:
        return "none"
    return stored if stored.startswith(("env:", "file:")) else "stored"


def option_fields(options: type, prefix: str, title: str = "") -> dict[str, forms.Field]:
    """The form fields of a group of options, by `<prefix>__<option>`; `title` begins their labels."""
    return {f"{prefix}__{info.name}": _option_field(info, title) for info in describe(options)}


def option_initial(options: type, prefix: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Initial values of these fields: what is stored; switches start from their default."""
    initial = {f"{prefix}__{name}": value for name, value in stored.items()}
    for info in describe(options):
        if info.type is bool:
            initial.setdefault(f"{prefix}__{info.name}", info.default)
    return initial


def read_option_fields(options: type, prefix: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """What to store of these fields: the values that differ from their defaults."""
    values = {info.name: cleaned.get(f"{prefix}__{info.name}") for info in describe(options)}
    defaults = {info.name: info.default for info in describe(options)}
    return {name: value for name, value in values.items() if value not in (None, "") and value != defaults[name]}


def option_readout(info: OptionInfo, stored: Mapping[str, Any]) -> str:
    """An option in words, for pages where it cannot be changed."""
    if info.name in stored:
        return f"{_plain(stored[info.name])} {info.unit}".strip()
    return f"{_plain(info.default)} {info.unit}".strip() + " (default)"


def option_label(info: OptionInfo, title: str = "") -> str:
    name = info.name.removesuffix("_s")  # the unit stands in brackets
    label = f"{title} {name}".strip().replace("_", " ").capitalize()
    return f"{label} ({info.unit})" if info.unit and info.unit not in label.lower() else label


class CheckedForm(_ModelForm):
    """A form that shows what the check of the whole configuration found, at the field it is about or above all."""

    problems: Sequence[Problem] = ()

    def path(self) -> str:
        """Where the object stands in problems: `pools[deepseek-v3]`."""
        raise NotImplementedError

    def field_of(self, name: str) -> str:
        """The form's field for a name of configuration files, `queue.size`."""
        return name.replace(".", "__")

    def own_problems(self) -> Iterable[Problem]:
        return self.problems

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # the stubs leave it out
        for problem in self.own_problems():
            name, message = self._shown(problem)
            self.add_error(name, message)

    def _shown(self, problem: Problem) -> tuple[str | None, str]:
        """The field that a problem is about, the row within it named, or no field."""
        place = f"{self.path()}."
        inner = problem.path.removeprefix(place) if problem.path.startswith(place) else ""
        if (name := self.field_of(inner)) in self.fields:
            return name, problem.message
        within = _ROW.fullmatch(inner)
        if within and (name := self.field_of(within["field"])) in self.fields:
            return name, f"Row {int(within['row']) + 1}{within['part'].replace('.', ', ')}: {problem.message}"
        return None, f"{problem}."


def _option_field(info: OptionInfo, title: str) -> forms.Field:
    field = _field_of_type(info)
    field.label = option_label(info, title)
    field.help_text = _help(info)
    return field


def _field_of_type(info: OptionInfo) -> forms.Field:
    attrs = {"placeholder": _plain(info.default)}
    if info.type is bool:
        return forms.BooleanField(required=False, widget=UnfoldBooleanSwitchWidget())
    if info.choices:
        choices = [("", f"default ({info.default})"), *((choice, choice) for choice in info.choices)]
        return forms.ChoiceField(choices=choices, required=False, widget=UnfoldAdminSelectWidget())
    if info.type is str:
        return forms.CharField(required=False, widget=UnfoldAdminTextInputWidget(attrs))
    if info.type is int:
        lowest, highest = (None if bound is None else int(bound) for bound in (info.minimum, info.maximum))
        return forms.IntegerField(required=False, min_value=lowest, max_value=highest, widget=NumberWidget(attrs))
    return forms.FloatField(
        required=False, min_value=info.minimum, max_value=info.maximum, widget=NumberWidget({**attrs, "step": "any"})
    )


def _help(info: OptionInfo) -> str:
    if info.type in (bool, str):
        return f"{info.help}."
    low, high = (None if bound is None else _number(bound) for bound in (info.minimum, info.maximum))
    bounds = f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}" if high else ""
    return f"{info.help}. {bounds}; default {_plain(info.default)}." if bounds else f"{info.help}."


def _number(value: float) -> str:
    """Bounds as people write them: 10,000,000 and not 1e+07."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
