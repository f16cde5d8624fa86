"""Why a call went where it went, for people: its attempts with the choice behind each, and the group's walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

_UNITS = {"_s": ("s", 3), "_ms": ("ms", 1)}


def attempts_table(attempts: Sequence[Mapping[str, Any]]) -> SafeString:
    """Each try at a worker as a section: how it went, and what it was chosen from."""
    return render_to_string(
        "admin_ui/attempts.html", {"attempts": [_attempt(number, each) for number, each in enumerate(attempts, 1)]}
    )


def route_table(route: Mapping[str, Any] | None) -> SafeString | str:
    """A group's walk: its members in the order in which they would have been asked."""
    if not route:
        return "not a group"
    return render_to_string("admin_ui/route.html", {"route": route})


def _attempt(number: int, attempt: Mapping[str, Any]) -> dict[str, Any]:
    decision = attempt.get("decision") or {}
    heads = decision.get("term_names", ()) if decision.get("terms") else ()
    return {
        "number": number,
        "worker": attempt.get("worker", ""),
        "pool": attempt.get("pool", ""),
        "outcome": str(attempt.get("outcome", "")).replace("_", " "),
        "status": attempt.get("status"),
        "started": _seconds(attempt.get("started_s")),
        "first_byte": _seconds(attempt.get("first_byte_s")),
        "ended": _seconds(attempt.get("ended_s")),
        "policy": decision.get("policy", ""),
        "note": decision.get("note", ""),
        "is_only": len(decision.get("candidates", ())) == 1,
        "heads": [_head(name) for name in heads],
        "rows": _rows(decision),
        "columns": len(heads) + 2,
        "left_out": decision.get("left_out", 0),
    }


def _rows(decision: Mapping[str, Any]) -> list[dict[str, Any]]:
    names, terms = decision.get("candidates", ()), decision.get("terms", ())
    heads = decision.get("term_names", ()) if terms else ()
    rows = []
    for at, name in enumerate(names):
        values = terms[at] if at < len(terms) else ()
        cells = [_term(head, value) for head, value in zip(heads, values, strict=False)]
        cells += [""] * (len(heads) - len(cells))
        rows.append({"worker": name, "is_chosen": name == decision.get("chosen"), "cells": cells, "reason": ""})
    for name, reason in decision.get("excluded", ()):
        rows.append({"worker": name, "is_chosen": False, "cells": [""] * len(heads), "reason": reason})
    return rows


def _head(name: str) -> str:
    """`ttft_s` as `ttft (s)`."""
    for suffix, (unit, _) in _UNITS.items():
        if name.endswith(suffix):
            return f"{name.removesuffix(suffix).replace('_', ' ')} ({unit})"
    return name.replace("_", " ")


def _term(name: str, value: Any) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    digits = next((digits for suffix, (_, digits) in _UNITS.items() if name.endswith(suffix)), None)
    if digits is not None:
        return f"{value:.{digits}f}"
    return f"{value:g}" if value == int(value) else f"{value:.4g}"


def _seconds(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return ""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
