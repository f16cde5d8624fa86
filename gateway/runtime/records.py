"""The rows that JSON columns hold: profiles of workers, members and rules of groups.

Each kind is a list of `Part`s, which forms, API schema and files read alike; their names are those of the dataclass
that a row becomes. An absent part and null mean the dataclass's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.routing.options import Problem

_MODALITIES = ("text", "image", "audio", "video")


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a row. `type` is list (of texts), bool, int or str; bounds are inclusive."""

    name: str
    type: type
    help: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    is_needed: bool = False


PROFILE = (
    Part("services", list, "Services such as chat"),
    Part("models", list, "Names that the worker is asked for"),
    Part("streaming", bool, "Only streams, or only whole answers"),
    Part("inputs", list, "All that may come in", choices=_MODALITIES),
    Part("outputs", list, "All that may come out", choices=_MODALITIES),
    Part("content_forms", list, "How messages hold their content", choices=("string", "parts")),
    Part("audio_formats", list, "Audio formats such as wav"),
    Part("tasks", list, "Tasks such as transcribe"),
    Part("max_batch_size", int, "Most items of a batch", minimum=1, maximum=1_000_000),
)
MEMBER = (
    Part("ref", str, "A pool's name, account/model-id or group/<id>", is_needed=True),
    Part("weight", int, "How often, beside the others' weights", minimum=1, maximum=10_000),
)
RULE = (
    Part("member", str, "The member that goes first", is_needed=True),
    Part("min_tokens", int, "Estimated tokens of the prompt are at least", minimum=1, maximum=1_000_000_000),
    Part("has_images", bool, "There are images"),
    Part("has_audio", bool, "There is audio"),
    Part("has_tools", bool, "Tools are offered or were called"),
    Part("min_effort", str, "Reasoning effort is at least", choices=("low", "medium", "high")),
    Part("header", str, "The request has the header, as name or name: value"),
    Part("keys", list, "The API key is one of these, as team/key"),
    Part("teams", list, "The team is one of these"),
    Part("intent", str, "The intent of the text is"),
)


def read_record(parts: Sequence[Part], raw: Any, path: str) -> tuple[dict[str, Any], list[Problem]]:
    """The values of a row, lists as frozensets, and what is wrong with it; wrong values are left out."""
    known = {part.name: part for part in parts}
    if not isinstance(raw, dict):
        return {}, [Problem(path, f"expected fields by name, got {raw!r}")]
    values: dict[str, Any] = {}
    problems = [
        Problem(f"{path}.{p.name}", "is needed") for p in parts if p.is_needed and raw.get(p.name) in (None, "")
    ]
    for name, value in raw.items():
        part = known.get(name)
        if part is None:
            problems.append(Problem(f"{path}.{name}", f"no such field; known: {', '.join(known)}"))
        elif value is None or (part.is_needed and value == ""):
            continue
        elif message := _wrong(part, value):
            problems.append(Problem(f"{path}.{name}", message))
        else:
            values[name] = frozenset(value) if part.type is list else value
    return values, problems


def _wrong(part: Part, value: Any) -> str:
    if part.type is list:
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            return f"expected a list of names, got {value!r}"
        return next((message for text in value if (message := _wrong_text(part, text))), "")
    if type(value) is not part.type:
        words = {bool: "true or false", int: "a whole number", str: "text"}
        return f"expected {words[part.type]}, got {value!r}"
    if isinstance(value, str):
        return _wrong_text(part, value)
    if isinstance(value, int) and part.minimum is not None and value < part.minimum:
        return f"{value} is below the least allowed, {part.minimum}"
    if isinstance(value, int) and part.maximum is not None and value > part.maximum:
        return f"{value} is above the most allowed, {part.maximum}"
    return ""


def _wrong_text(part: Part, text: str) -> str:
    if part.choices and text not in part.choices:
        return f"{text!r} is none of {', '.join(part.choices)}"
    return "" if text.isprintable() else f"{text!r} has characters that cannot be printed"
