"""How values look on the operators' pages: columns, coloured labels, points in time, texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from unfold.decorators import display

Method = TypeVar("Method", bound=Callable[..., Any])

_SHOWN_CHARACTERS = 200_000  # of a text on a page


def column(
    title: str, *, order: str | None = None, label: Mapping[str, str] | None = None
) -> Callable[[Method], Method]:
    """A computed column of a list or a page. `label` gives the colours of chips by value, in lists only."""
    return display(description=title, ordering=order, label=label)  # type: ignore[no-any-return]  # unfold is untyped


def chip(text: str, kind: str) -> SafeString:
    """A coloured label, for pages of one object."""
    return render_to_string("unfold/helpers/label.html", {"text": text, "type": kind})


def moment(value: datetime | None) -> str:
    """A point in time with its zone."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if value else "never"


def page_text(text: str) -> SafeString:
    """Any text, as it is, in a box of its own."""
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}\n… ({len(text):,} characters)"
    return render_to_string("admin_ui/text.html", {"text": shown})
