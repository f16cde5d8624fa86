"""Rules of a group: which member goes first, from what a request says of itself and who sends it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gateway.routing.requirement import Facts
from gateway.routing.snapshot import GroupSpec, RuleSpec

_EFFORTS = {"none": 0, "minimal": 1, "low": 2, "medium": 3, "high": 4, "xhigh": 5}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. Header names are in lower case."""

    team: str = ""
    key: str = ""
    team_id: int = 0
    headers: tuple[tuple[bytes, bytes], ...] = ()


def first_match(
    group: GroupSpec, among: Collection[str], facts: Facts, caller: Caller, intent: str | None
) -> RuleSpec | None:
    """The first rule whose conditions all hold and whose member is `among` those that can be asked."""
    return next((rule for rule in group.rules if rule.member in among and _holds(rule, facts, caller, intent)), None)


def hangs_on_intent(group: GroupSpec, facts: Facts, caller: Caller) -> bool:
    """Whether the first rule that may hold looks at the intent, so that its classifier is worth waiting for."""
    rule = next((rule for rule in group.rules if _holds(rule, facts, caller, rule.intent)), None)
    return rule is not None and rule.intent is not None


def describe(rule: RuleSpec) -> str:
    """The conditions of a rule in a line."""
    said = [
        f"at least {rule.min_tokens} tokens" if rule.min_tokens is not None else "",
        _having(rule.has_images, "images"),
        _having(rule.has_audio, "audio"),
        _having(rule.has_tools, "tools"),
        f"effort at least {rule.min_effort}" if rule.min_effort else "",
        f"header {rule.header.partition(':')[0].strip()}" if rule.header else "",
        f"key {', '.join(sorted(rule.keys))}" if rule.keys else "",
        f"team {', '.join(sorted(rule.teams))}" if rule.teams else "",
        f"intent {rule.intent}" if rule.intent else "",
    ]
    return " and ".join(filter(None, said)) or "always"


def _holds(rule: RuleSpec, facts: Facts, caller: Caller, intent: str | None) -> bool:
    return (
        (rule.min_tokens is None or facts.input_tokens >= rule.min_tokens)
        and (rule.has_images is None or rule.has_images == ("image" in facts.inputs))
        and (rule.has_audio is None or rule.has_audio == ("audio" in facts.inputs))
        and (rule.has_tools is None or rule.has_tools == facts.has_tools)
        and (rule.min_effort is None or _effort(facts.effort) >= _effort(rule.min_effort))
        and (rule.header is None or _has_header(rule.header, caller.headers))
        and (not rule.keys or f"{caller.team}/{caller.key}" in rule.keys)
        and (not rule.teams or caller.team in rule.teams)
        and (rule.intent is None or rule.intent == intent)
    )


def _effort(name: str | None) -> int:
    """An unknown word is none: a request must not be put on the dearest model by a typing error."""
    return _EFFORTS.get((name or "").lower(), 0)


def _has_header(wanted: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    name, colon, value = wanted.partition(":")
    lower = name.strip().lower().encode()
    values = [found for each, found in headers if each == lower]
    if not colon:
        return bool(values)
    return value.strip().lower().encode() in (found.strip().lower() for found in values)


def _having(wanted: bool | None, what: str) -> str:
    return "" if wanted is None else f"{what}" if wanted else f"no {what}"
