"""Form fields for JSON columns that hold rows: members and rules of groups, and intents by name.

A row is a set of inputs whose names repeat from row to row, so that rows are added, moved and removed in the page by
moving elements (rows.js). What the values must be is the builder's to say: a field only turns texts into values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django import forms
from django.forms.renderers import BaseRenderer
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from admin_ui.forms import NameListField
from gateway.runtime.records import MEMBER, RULE, Part

_SWITCH = {"true": True, "false": False}

Row = dict[str, str]


class RowsWidget(forms.Widget):
    """Rows of inputs. `lead` of the parts always show, the others only where they are set.

    `shown_when` has Alpine conditions over the form's fields for parts that matter only then.
    """

    template_name = "admin_ui/rows.html"

    class Media:
        css = {"all": ("admin_ui/forms.css",)}
        js = ("admin_ui/rows.js",)

    def __init__(
        self,
        parts: Sequence[Part],
        lead: int,
        noun: str,
        *,
        suggests: str = "",  # the part that has suggestions
        suggests_from: str = "",  # inputs of this name in the same form give them
        shown_when: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.parts, self.lead, self.noun = parts, lead, noun
        self.suggests, self.suggests_from = suggests, suggests_from
        self.shown_when = shown_when or {}
        self.suggestions: Iterable[str] = ()

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[Row]:
        columns = {part.name: data.getlist(f"{name}-{part.name}") for part in self.parts}
        count = max(len(texts) for texts in columns.values())
        rows = [{n: texts[i].strip() for n, texts in columns.items() if i < len(texts)} for i in range(count)]
        return [row for row in rows if any(row.values())]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return False  # no rows are an empty list

    def id_for_label(self, id_: str) -> str:
        return ""  # a label points to one input

    def format_value(self, value: Any) -> Any:
        return value or []

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: BaseRenderer | None = None
    ) -> SafeString:
        context = {
            "noun": self.noun,
            "list_id": f"{name}-suggestions",
            "suggestions": self.suggestions,
            "suggests_from": self.suggests_from,
            "rows": [self._row(name, row, renderer) for row in self.format_value(value)],
            "empty": self._row(name, {}, renderer),
            "conditions": self.parts[self.lead :],
        }
        return self._render(self.template_name, context, renderer)  # type: ignore[attr-defined, no-any-return]

    def _row(self, name: str, row: Row, renderer: BaseRenderer | None) -> Mapping[str, Any]:
        cells = [self._cell(name, part, row.get(part.name, ""), renderer) for part in self.parts]
        return {"lead": cells[: self.lead], "conditions": cells[self.lead :]}

    def _cell(self, name: str, part: Part, value: str, renderer: BaseRenderer | None) -> Mapping[str, Any]:
        attrs: dict[str, Any] = {"aria-label": part.help}
        if part.name == self.suggests:
            attrs |= {"list": f"{name}-suggestions", "autocomplete": "off"}
        if part.type is int:
            attrs["inputmode"] = "numeric"
        if part in self.parts[: self.lead]:
            attrs["placeholder"] = part.name if part.type is int else part.help
        choices = [("", ""), *((text, text) for text in part.choices)]
        if part.type is bool:
            choices = [("", ""), ("true", "yes"), ("false", "no")]
        if value and value not in dict(choices):
            choices.append((value, value))  # a wrong value is shown, not dropped
        is_choice = part.type is bool or (part.choices and part.type is str)
        widget = UnfoldAdminSelectWidget(choices=choices) if is_choice else UnfoldAdminTextInputWidget()
        html = widget.render(f"{name}-{part.name}", value, attrs, renderer)
        return {"part": part, "html": html, "is_set": bool(value), "shown_when": self.shown_when.get(part.name, "")}


class MembersField(forms.Field):
    """Members of a group in their order: a text, or a mapping where the weight is not 1."""

    def __init__(self, **kwargs: Any) -> None:
        widget = RowsWidget(MEMBER, 2, "member", suggests="ref", shown_when={"weight": "strategy == 'weight'"})
        super().__init__(widget=widget, required=False, **kwargs)

    def prepare_value(self, value: Any) -> list[Row]:
        return [_texts({"ref": row} if isinstance(row, str) else row) for row in _list(value)]

    def to_python(self, value: Any) -> list[Any]:
        read = [_values(MEMBER, row) for row in value or []]
        return [row.get("ref", "") if row.get("weight", 1) == 1 else row for row in read]


class RulesField(forms.Field):
    """Rules of a group in their order, with the conditions that are set."""

    def __init__(self, **kwargs: Any) -> None:
        widget = RowsWidget(RULE, 1, "rule", suggests="member", suggests_from="members-ref")
        super().__init__(widget=widget, required=False, **kwargs)

    def prepare_value(self, value: Any) -> list[Row]:
        return [_texts(row) for row in _list(value)]

    def to_python(self, value: Any) -> list[Any]:
        return [_values(RULE, row) for row in value or []]


class IntentsField(forms.Field):
    """Texts by name."""

    _PARTS = (Part("name", str, "Name"), Part("meaning", str, "What it means"))

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(widget=RowsWidget(self._PARTS, 2, "intent"), required=False, **kwargs)

    def prepare_value(self, value: Any) -> list[Row]:
        pairs = value.items() if isinstance(value, dict) else []
        return [{"name": name, "meaning": str(text)} for name, text in pairs] or _list(value)

    def to_python(self, value: Any) -> dict[str, str]:
        return {row.get("name", ""): row.get("meaning", "") for row in value or []}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(row: Any) -> Row:
    """What the inputs of a row show."""
    pairs = row.items() if isinstance(row, dict) else []
    return {name: _text(value) for name, value in pairs if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _values(parts: Sequence[Part], row: Row) -> dict[str, Any]:
    """What a row's inputs say; a text that is no such value stays as it is, for the check to complain of."""
    return {part.name: _value(part, row[part.name]) for part in parts if row.get(part.name)}


def _value(part: Part, text: str) -> Any:
    if part.type is list:
        return NameListField().to_python(text)
    if part.type is bool:
        return _SWITCH.get(text, text)
    return int(text) if part.type is int and text.isascii() and text.isdecimal() else text
