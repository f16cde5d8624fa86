"""In which order a group asks its members when nothing else decides.

order     as listed
rotate    as listed, from a start that moves on by one with each call
weight    by chance: each place goes to one of those left, as often as its weight says
smart     of the members with less than 90 % of their allowance used, the one that renews soonest (by the hour), those
          of which nothing is known after them; then those above 90 %, then those above 98 %
usage     who has had the fewest tokens, which count half after an hour
manual    the picked one, the others behind it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.snapshot import GroupSpec, MemberSpec, Strategy

_HALF_LIFE_S = 3600.0
_NEARLY, _ALMOST = 0.90, 0.98


@dataclass(frozen=True, slots=True)
class Standing:
    """How a member stands. `used` is the used share of its allowance, None unknown; `renews_at` monotonic seconds."""

    is_resting: bool = False
    used: float | None = None
    renews_at: float = 0.0


class Strategies:
    """What strategies remember between calls, for all groups. `random` gives numbers in [0, 1)."""

    __slots__ = ("_calls", "_random", "_tokens")

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._calls: dict[str, int] = {}  # of groups that rotate
        self._tokens: dict[tuple[str, str], tuple[float, float]] = {}  # by group and member, and when that was so

    def keep(self, groups: Sequence[GroupSpec]) -> None:
        """Forget what is not of these groups and their members."""
        ids = {group.id for group in groups}
        members = {(group.id, member.ref) for group in groups for member in group.members}
        self._calls = {group: calls for group, calls in self._calls.items() if group in ids}
        self._tokens = {member: tokens for member, tokens in self._tokens.items() if member in members}

    def order(
        self, group: GroupSpec, members: Sequence[MemberSpec], standing: Callable[[str], Standing], now: float
    ) -> list[MemberSpec]:
        """The members in the order of the group's strategy; changes nothing. `standing` goes by ref."""
        match group.strategy:
            case Strategy.ROTATE:
                start = self._calls.get(group.id, 0) % len(members) if members else 0
                return [*members[start:], *members[:start]]
            case Strategy.WEIGHT:
                return self._by_chance(members)
            case Strategy.SMART:
                return sorted(members, key=lambda member: _smart(standing(member.ref), now))
            case Strategy.USAGE:
                return sorted(members, key=lambda member: self.tokens(group.id, member.ref, now))
            case Strategy.MANUAL:
                return sorted(members, key=lambda member: member.ref != group.picked)
            case Strategy.ORDER:
                return list(members)

    def called(self, group: GroupSpec) -> None:
        """A call was put in order: the next one starts elsewhere."""
        if group.strategy is Strategy.ROTATE:
            self._calls[group.id] = self._calls.get(group.id, 0) + 1

    def spent(self, group_id: str, ref: str, tokens: int, now: float) -> None:
        """A member has had so many tokens."""
        self._tokens[group_id, ref] = (self.tokens(group_id, ref, now) + tokens, now)

    def tokens(self, group_id: str, ref: str, now: float) -> float:
        """What a member has had lately, older tokens counting less."""
        tokens, at = self._tokens.get((group_id, ref), (0.0, now))
        faded: float = tokens * 0.5 ** (max(0.0, now - at) / _HALF_LIFE_S)
        return faded

    def _by_chance(self, members: Sequence[MemberSpec]) -> list[MemberSpec]:
        left, order = list(members), []
        while left:
            at = self._random() * sum(member.weight for member in left)
            for member in left:
                at -= member.weight
                if at < 0:
                    break
            left.remove(member)
            order.append(member)
        return order


def _smart(standing: Standing, now: float) -> tuple[int, int, int]:
    """Sort key: how near the end of the allowance, known before unknown, hours until it renews."""
    if standing.used is None:
        return 0, 1, 0
    tier = 0 if standing.used < _NEARLY else 1 if standing.used < _ALMOST else 2
    return tier, 0, int(max(0.0, standing.renews_at - now) // 3600)
