"""Form fields that are made from declared options."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django import forms
from django.core.exceptions import ValidationError

from admin_ui.forms import (
    LabelsField,
    NameListField,
    SecretField,
    option_fields,
    option_initial,
    option_readout,
    read_option_fields,
    secret_text,
)
from gateway.routing.options import describe, option


@dataclass(frozen=True, slots=True)
class Options:
    wait_s: float = option(1.5, "How long", unit="s", minimum=0.5, maximum=2000)
    tries: int = option(3, "How often", unit="tries", minimum=1)
    is_on: bool = option(True, "Whether")
    mode: str = option("fast", "Which way", choices=("fast", "safe"))
    path: str = option("/x", "Where")
    cap: int | None = option(None, "At most", minimum=1)


Form = type("Form", (forms.Form,), option_fields(Options, "g"))


def test_option_fields_say_label_help_bounds_and_default() -> None:
    wait = Form().fields["g__wait_s"]

    assert (wait.label, wait.help_text) == ("Wait (s)", "How long. 0.5 to 2,000; default 1.5.")
    assert wait.widget.attrs["placeholder"] == "1.5"
    assert (wait.min_value, wait.max_value) == (0.5, 2000)


def test_option_fields_give_only_what_differs_from_the_defaults() -> None:
    form = Form({"g__wait_s": "1.5", "g__tries": "4", "g__mode": "safe", "g__path": "", "g__cap": "9"})

    assert form.is_valid()
    assert read_option_fields(Options, "g", form.cleaned_data) == {"tries": 4, "is_on": False, "mode": "safe", "cap": 9}


@pytest.mark.parametrize(("value", "is_valid"), [("0.5", True), ("0.49", False), ("2000", True), ("2000.1", False)])
def test_option_field_has_the_declared_bounds(value: str, is_valid: bool) -> None:
    assert Form({"g__wait_s": value}).is_valid() == is_valid


def test_option_initial_is_what_is_stored_and_the_state_of_switches() -> None:
    assert option_initial(Options, "g", {"tries": 4}) == {"g__tries": 4, "g__is_on": True}


def test_option_readout_tells_defaults_apart() -> None:
    wait, *_, cap = describe(Options)

    assert option_readout(wait, {"wait_s": 2.0}) == "2 s"
    assert option_readout(wait, {}) == "1.5 s (default)"
    assert option_readout(cap, {}) == "none (default)"


def test_name_list_takes_commas_and_lines_and_drops_repetitions() -> None:
    assert NameListField().clean("a, b\n b\n\nc,") == ["a", "b", "c"]


def test_labels_are_names_and_values() -> None:
    assert LabelsField().clean("zone=b, rack = 7=x") == {"zone": "b", "rack": "7=x"}
    with pytest.raises(ValidationError, match="zone: name=value is expected"):
        LabelsField().clean("zone")


@pytest.mark.parametrize(
    ("data", "expected"), [(["", ""], None), (["", "on"], ""), (["env:KEY", ""], "env:KEY"), (None, None)]
)
def test_secret_field_keeps_removes_or_replaces(data: list[str] | None, expected: str | None) -> None:
    assert SecretField().clean(data) == expected


def test_secret_field_with_both_asks_which() -> None:
    with pytest.raises(ValidationError, match="not both"):
        SecretField().clean(["new", "on"])


def test_secret_text_shows_references_only() -> None:
    assert [secret_text(stored) for stored in ("", "env:KEY", "file:/k", "sealed:abc")] == [
        "none",
        "env:KEY",
        "file:/k",
        "stored",
    ]
