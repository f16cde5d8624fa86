"""Groups from their rows, and what can be wrong with them. Whether they lead anywhere is routing/groups' to say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from gateway.models import Group
from gateway.routing.groups import problems
from gateway.routing.references import GROUP, find
from gateway.routing.snapshot import (
    AccountSpec,
    ErrorClasses,
    GroupSpec,
    MemberSpec,
    PoolSpec,
    RuleSpec,
    Snapshot,
    Strategy,
)
from gateway.runtime.checks import Checks
from gateway.runtime.fields import group_path
from gateway.runtime.records import MEMBER, RULE, read_record
from gateway.runtime.rows import Rows

_STRATEGIES = {strategy.value: strategy for strategy in Strategy}
_ERROR_CLASSES = {classes.value: classes for classes in ErrorClasses}


class GroupChecks:
    """Looks at all groups; `names` are the names of all pools, enabled or not."""

    def __init__(self, checks: Checks, rows: Rows, names: Collection[str], accounts: Mapping[str, AccountSpec]) -> None:
        self._checks, self._rows, self._names, self._accounts = checks, rows, names, accounts
        self._teams = {team.name for team in rows.teams}
        self._keys = {f"{key.team.name}/{key.name}" for key in rows.keys}

    def all(self) -> dict[str, GroupSpec]:
        """All groups by id, enabled or not."""
        return {group.name: self._group(group) for group in self._rows.groups}

    def lead_somewhere(self, whole: Snapshot) -> None:
        """Whether all members are there and no group leads to itself; `whole` has the disabled pools and groups too."""
        rows = {
            f"{group_path(spec.id)}.members[{member.ref}]": f"{group_path(spec.id)}.members[{number}]"
            for spec in whole.groups.values()
            for number, member in enumerate(spec.members)
        }
        for problem in problems(whole.groups.values(), whole):
            self._checks.wrong(rows.get(problem.path, problem.path), problem.message)

    def _group(self, group: Group) -> GroupSpec:
        checks, path = self._checks, group_path(group.name)
        checks.slug(group.name, f"{path}.id")
        checks.columns(group, path, "strategy", "error_classes", "max_attempts")
        members = self._members(group.members, f"{path}.members")
        refs = {member.ref for member in members}
        if group.members == [] and group.is_enabled:
            checks.wrong(f"{path}.members", "an enabled group needs members")
        if group.picked and group.picked not in refs:
            checks.wrong(f"{path}.picked", f"{group.picked!r} is no member of this group")
        intents = checks.labels(group.intents, f"{path}.intents")
        self._intent_model(group, f"{path}.intent_model")
        return GroupSpec(
            id=group.name,
            strategy=_STRATEGIES.get(group.strategy, Strategy.ORDER),
            members=members,
            rules=self._rules(group, refs, intents, f"{path}.rules"),
            picked=group.picked or None,
            error_classes=_ERROR_CLASSES.get(group.error_classes, ErrorClasses.DEFAULT),
            max_attempts=group.max_attempts,
            keeps_conversations=group.keeps_conversations,
            intent_model=group.intent_model or None,
            intents=MappingProxyType(intents),
            created_s=int(group.created_at.timestamp()),
        )

    def _members(self, raw: Any, path: str) -> tuple[MemberSpec, ...]:
        if not isinstance(raw, list):
            self._checks.wrong(path, f'expected a list such as [m, {{"ref": "n", "weight": 2}}], got {raw!r}')
            return ()
        members: dict[str, MemberSpec] = {}
        for number, given in enumerate(raw):
            at = f"{path}[{number}]"
            values, problems = read_record(MEMBER, {"ref": given} if isinstance(given, str) else given, at)
            self._checks.problems += problems
            ref = values.get("ref")
            if ref in members:
                self._checks.wrong(at, f"{ref!r} is a member already")
            elif ref is not None:
                members[ref] = MemberSpec(**values)
        return tuple(members.values())

    def _rules(
        self, group: Group, refs: Collection[str], intents: Mapping[str, str], path: str
    ) -> tuple[RuleSpec, ...]:
        if not isinstance(group.rules, list):
            self._checks.wrong(path, f"expected a list of rules, got {group.rules!r}")
            return ()
        rules = []
        for number, given in enumerate(group.rules):
            at = f"{path}[{number}]"
            values, problems = read_record(RULE, given, at)
            self._checks.problems += problems
            if "member" in values:
                rule = RuleSpec(**values)
                self._rule(rule, refs, intents, at)
                rules.append(rule)
        if any(rule.intent for rule in rules) and not group.intent_model:
            self._checks.wrong(f"{group_path(group.name)}.intent_model", "is needed by rules that look at the intent")
        return tuple(rules)

    def _rule(self, rule: RuleSpec, refs: Collection[str], intents: Mapping[str, str], path: str) -> None:
        checks = self._checks
        if rule.member not in refs:
            checks.wrong(f"{path}.member", f"{rule.member!r} is no member of this group")
        if rule.intent is not None and rule.intent not in intents:
            checks.wrong(f"{path}.intent", f"{rule.intent!r} is none of the intents: {', '.join(intents) or 'none'}")
        if rule == RuleSpec(rule.member):
            checks.warn(path, "has no condition and holds for every call")
        if strangers := sorted(rule.teams - self._teams):
            checks.warn(f"{path}.teams", f"there is no team {', '.join(strangers)}")
        if strangers := sorted(rule.keys - self._keys):
            checks.warn(f"{path}.keys", f"there is no key {', '.join(strangers)}")

    def _intent_model(self, group: Group, path: str) -> None:
        name = group.intent_model
        head, _, tail = name.partition("/")
        if name and name not in self._names and (head == GROUP or not tail or head not in self._accounts):
            self._checks.wrong(path, f"{name!r} is no pool and no model of an account")


def account_pools(snapshot: Snapshot) -> dict[str, PoolSpec]:
    """The pools that stand for the account models which groups name, by name."""
    named = [member.ref for group in snapshot.groups.values() for member in group.members]
    named += [group.intent_model for group in snapshot.groups.values() if group.intent_model]
    found = {name: find(snapshot, name) for name in named}
    return {name: pool for name, pool in found.items() if isinstance(pool, PoolSpec) and pool.is_of_account}
