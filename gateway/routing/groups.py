"""Groups: several models behind one name, and the way of a call through them.

    strategy -> a rule (or the intent) puts a member first -> else the conversation's last answerer -> resting ones last

Members are pools, models of accounts, or groups, 8 deep at most. An inner group counts as one member and is put in
order by its own strategy and rules; its members stand at its place. What is named twice keeps its first place. Loops
are refused when a configuration is saved, and cut here all the same.

The `manual` strategy knows no rules: its picked member goes first. The intent is that of the group that was asked for.

Rules are looked at once per turn of the user: until the next user message the member that answered goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.routing.intent import Intents
from gateway.routing.memory import Memory
from gateway.routing.options import Problem
from gateway.routing.references import GROUP, find
from gateway.routing.requirement import Facts
from gateway.routing.rules import Caller, describe, first_match, hangs_on_intent
from gateway.routing.snapshot import GroupSpec, PoolId, PoolSpec, Snapshot, Strategy
from gateway.routing.strategies import Standing, Strategies

MAX_DEPTH = 8
_SPENT = 0.98  # of the allowance: not worth keeping a conversation for
_REMEMBERED = 50_000  # conversations and turns of a process
_CONVERSATION_S = 3600.0
_TURN_S = 1800.0
_SHOWN = 32  # members in a trace


@dataclass(frozen=True, slots=True)
class Asked:
    """One call as groups see it. `conversation` is its routing key or conversation id, if it has one."""

    facts: Facts
    caller: Caller
    conversation: str | None = None
    intents: Mapping[str, str | None] = field(default_factory=dict)  # by group id, where a classifier was asked

    def turn(self, group_id: str) -> tuple[object, ...]:
        """Stands for the user's turn that the call belongs to."""
        return group_id, self.caller.team_id, self.conversation or self.caller.key, self.facts.turn

    def kept(self, group_id: str) -> tuple[object, ...] | None:
        """Stands for the conversation."""
        return None if self.conversation is None else (group_id, self.caller.team_id, self.conversation)


@dataclass(slots=True)
class Step:
    """One pool to be asked. `chain` leads to it: each group with its member, the outermost first."""

    ref: str
    pool: PoolSpec
    why: str
    chain: tuple[tuple[str, str], ...]
    result: str = ""

    @property
    def name(self) -> str:
        """The member as an operator reads it, with the groups that it was reached through."""
        inner = "".join(f"{GROUP}/{group} > " for group, _ in self.chain[1:])
        return f"{inner}{self.ref}"


@dataclass(slots=True)
class Walk:
    """A call's way through a group: the pools in the order in which they are to be asked."""

    group: GroupSpec
    asked: Asked
    steps: list[Step] = field(default_factory=list)
    groups: list[GroupSpec] = field(default_factory=list)  # that were put in order
    rule: str = ""
    intent: str = ""
    current: Step | None = None  # that is being asked, or was last

    def lines(self) -> list[str]:
        """A line for each member that was asked."""
        return [f"{step.name}: {step.result}" for step in self.steps if step.result]

    def trace(self) -> dict[str, Any]:
        """The walk to be kept and shown."""
        steps = [{"ref": step.name, "why": step.why, "result": step.result} for step in self.steps[:_SHOWN]]
        return {
            "group": self.group.name,
            "rule": self.rule,
            "intent": self.intent,
            "steps": steps,
            "left_out": max(0, len(self.steps) - _SHOWN),
        }


class Groups:
    """The live state of all groups of a process. `standing` says how a pool stands; `random` is in [0, 1)."""

    __slots__ = ("_answerers", "_intents_had", "_standing", "_turns", "intents", "strategies")

    def __init__(self, standing: Callable[[PoolSpec, float], Standing], random: Callable[[], float]) -> None:
        self.strategies = Strategies(random)
        self.intents = Intents()
        self._standing = standing
        self._answerers: Memory[tuple[object, ...], str] = Memory(_REMEMBERED, _CONVERSATION_S)
        self._turns: Memory[tuple[object, ...], str] = Memory(_REMEMBERED, _TURN_S)
        self._intents_had: Memory[tuple[object, ...], str] = Memory(_REMEMBERED, _CONVERSATION_S)

    def wants_intent(self, group: GroupSpec, asked: Asked, now: float) -> bool:
        """Whether a classifier should be asked first: a new turn of the user, whose member hangs on the intent."""
        return (
            self.intents.is_worth_asking(group, now)
            and self._stays(group, asked, now) is None
            and hangs_on_intent(group, asked.facts, asked.caller)
        )

    def previous_intent(self, group: GroupSpec, asked: Asked, now: float) -> str | None:
        """The intent of the conversation's turn before."""
        key = asked.kept(group.id)
        return None if key is None else self._intents_had.get(key, now)

    def plan(self, snapshot: Snapshot, group: GroupSpec, asked: Asked, now: float) -> Walk:
        """The way that a call would take now; changes nothing."""
        walk = Walk(group, asked)
        steps: dict[PoolId, Step] = {}
        self._expand(walk, snapshot, group, (), "", steps, now)
        order = list(steps.values())
        resting = [step for step in order if self._standing(step.pool, now).is_resting]
        if resting and len(resting) < len(order):
            for step in resting:
                step.why = f"{step.why}; last while it rests"
                order.remove(step)
            order += resting
        walk.steps = order
        return walk

    def began(self, walk: Walk) -> None:
        """A call takes this way."""
        for group in walk.groups:
            self.strategies.called(group)

    def succeeded(self, walk: Walk, step: Step, now: float) -> None:
        """A member answered: it keeps the turn and the conversation."""
        asked = walk.asked
        for group_id, ref in step.chain:
            self._turns.set(asked.turn(group_id), ref, now)
            kept = asked.kept(group_id)
            if kept is not None:
                self._answerers.set(kept, ref, now)
                if (intent := asked.intents.get(group_id)) is not None:
                    self._intents_had.set(kept, intent, now)

    def spent(self, step: Step, tokens: int, now: float) -> None:
        """An answer took so many tokens, which the member had in each group on the way to it."""
        for group_id, ref in step.chain:
            self.strategies.spent(group_id, ref, tokens, now)

    def _expand(
        self,
        walk: Walk,
        snapshot: Snapshot,
        group: GroupSpec,
        chain: tuple[tuple[str, str], ...],
        why: str,
        steps: dict[PoolId, Step],
        now: float,
    ) -> None:
        """Add the pools of a group behind those that are there."""
        if len(chain) >= MAX_DEPTH or any(group is seen for seen in walk.groups):  # what it leads to is there
            return
        walk.groups.append(group)
        targets = {member.ref: find(snapshot, member.ref) for member in group.members}
        members = [member for member in group.members if targets[member.ref] is not None]

        def standing(ref: str) -> Standing:
            target = targets[ref]
            return self._standing_of(snapshot, target, now) if target is not None else Standing()

        order = [member.ref for member in self.strategies.order(group, members, standing, now)]
        first, reason = self._first(walk, group, order, standing, now)
        if first:
            order.remove(first)
            order.insert(0, first)
        for ref in order:
            target = targets[ref]
            said = f"{why}{reason if ref == first else group.strategy.value}"
            if isinstance(target, PoolSpec):
                steps.setdefault(target.id, Step(ref, target, said, (*chain, (group.id, ref))))
            elif target is not None:
                self._expand(walk, snapshot, target, (*chain, (group.id, ref)), f"{said} > ", steps, now)

    def _first(
        self, walk: Walk, group: GroupSpec, order: list[str], standing: Callable[[str], Standing], now: float
    ) -> tuple[str, str]:
        """The member of the strategy's order that goes before it, and why; empty: none does."""
        asked = walk.asked
        stays = self._stays(group, asked, now)
        if stays in order:
            return stays, "answers this turn"
        if group.strategy is Strategy.MANUAL:  # somebody picked: rules and habits wait
            return "", ""
        intent = asked.intents.get(group.id)
        if intent and group is walk.group:
            walk.intent = intent
        rule = first_match(group, order, asked.facts, asked.caller, intent or None)
        if rule is not None:
            if group is walk.group:
                walk.rule = describe(rule)
            return rule.member, f"rule: {describe(rule)}"
        key = asked.kept(group.id) if group.keeps_conversations else None
        answerer = self._answerers.get(key, now) if key is not None else None
        if answerer in order:
            stands = standing(answerer)
            if not stands.is_resting and (stands.used or 0.0) < _SPENT:
                return answerer, "answered this conversation before"
        return "", ""

    def _stays(self, group: GroupSpec, asked: Asked, now: float) -> str | None:
        """The member that answered the user's message to which a tool's answer now comes."""
        return self._turns.get(asked.turn(group.id), now) if asked.facts.is_continuation else None

    def _standing_of(self, snapshot: Snapshot, target: PoolSpec | GroupSpec, now: float) -> Standing:
        """How a member stands; of a group, as its best member does."""
        if isinstance(target, PoolSpec):
            return self._standing(target, now)
        found = [self._standing(pool, now) for pool in pools_of(snapshot, target, set())]
        known = [one for one in found if one.used is not None]
        best = min(known, key=lambda one: (one.used or 0.0, one.renews_at), default=Standing())
        return Standing(bool(found) and all(one.is_resting for one in found), best.used, best.renews_at)


def pools_of(snapshot: Snapshot, group: GroupSpec, seen: set[str]) -> list[PoolSpec]:
    """The pools that a group can lead to, leaving out the groups that were `seen`."""
    seen.add(group.id)
    found: list[PoolSpec] = []
    for member in group.members:
        target = find(snapshot, member.ref)
        if isinstance(target, PoolSpec):
            found.append(target)
        elif target is not None and target.id not in seen:
            found += pools_of(snapshot, target, seen)
    return found


def problems(groups: Iterable[GroupSpec], snapshot: Snapshot) -> list[Problem]:
    """Why groups lead nowhere or in circles: members that there are not, loops, nesting that is too deep."""
    found = []
    for group in groups:
        for member in group.members:
            if find(snapshot, member.ref) is None:
                path = f"groups[{group.id}].members[{member.ref}]"
                found.append(Problem(path, _unknown(member.ref)))
        loop = _loop(snapshot, group)
        if loop:
            found.append(Problem(f"groups[{group.id}].members", f"leads back to itself: {' > '.join(loop)}"))
        elif _is_deep(snapshot, group):
            found.append(Problem(f"groups[{group.id}].members", f"is nested deeper than {MAX_DEPTH} groups"))
    return found


def _unknown(ref: str) -> str:
    head, slash, tail = ref.partition("/")
    if not slash:
        return f"there is no pool {ref!r}; expected a pool's name, account/model-id or group/id"
    if not head or not tail:
        return f"{ref!r} lacks a part; expected account/model-id or group/id"
    return f"there is no enabled group {tail!r}" if head == GROUP else f"there is no account {head!r}"


def _loop(snapshot: Snapshot, group: GroupSpec) -> tuple[str, ...]:
    """The ids of the groups on a shortest way from a group back to itself; empty: there is none."""
    ways: list[tuple[str, ...]] = [(group.id,)]
    seen: set[str] = set()
    for way in ways:  # grows while it is gone through
        for inner in _inner(snapshot, snapshot.groups.get(way[-1], group)):
            if inner.id == group.id:
                return (*way, inner.id)
            if inner.id not in seen:
                seen.add(inner.id)
                ways.append((*way, inner.id))
    return ()


def _is_deep(snapshot: Snapshot, group: GroupSpec) -> bool:
    """Whether a way down leads through more than MAX_DEPTH groups, this one included; any way into a loop does."""
    level = {group.id: group}
    for _ in range(MAX_DEPTH):
        level = {inner.id: inner for each in level.values() for inner in _inner(snapshot, each)}
    return bool(level)


def _inner(snapshot: Snapshot, group: GroupSpec) -> list[GroupSpec]:
    targets = (find(snapshot, member.ref) for member in group.members)
    return [target for target in targets if isinstance(target, GroupSpec)]
