"""Why a call went where it went: who could have taken it, who could not, and what the policy thought of the rest."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

SHOWN = 16  # workers of each kind that a decision names; a record is read by a person


class Exclusion(enum.Enum):
    """Why a worker is no candidate for a call."""

    DRAINING = "draining"
    DISABLED = "disabled"
    NOT_THE_TARGET = "not the target"
    TRIED = "tried already"
    PROFILE = "no profile for this request"
    UNHEALTHY = "unhealthy"
    CIRCUIT_OPEN = "circuit open"
    REFUSED = "refused a connection just now"
    FULL = "at its cap"
    RESTING = "resting"
    SLOW_START = "slow start"


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):  # one a call: made and written faster than others
    """One choice of a worker. `terms` goes by candidate, in the order of `term_names`; empty: nothing was weighed."""

    policy: str
    chosen: str
    candidates: tuple[str, ...]
    term_names: tuple[str, ...] = ()
    terms: tuple[tuple[float, ...], ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()  # worker, reason
    left_out: int = 0  # workers that are not named here
    note: str = ""  # of the pool: why its policy was not asked, or asked about others than usual


def decision(
    policy: str,
    chosen: str,
    candidates: Sequence[str],
    term_names: tuple[str, ...],
    terms: Sequence[tuple[float, ...]],
    excluded: Sequence[tuple[str, str]],
    note: str = "",
) -> Decision:
    """A decision of bounded size; the chosen worker, if there is one, is always among the named ones."""
    if len(candidates) <= SHOWN and len(excluded) <= SHOWN:
        return Decision(policy, chosen, tuple(candidates), term_names, tuple(terms), tuple(excluded), 0, note)
    at = candidates.index(chosen) if chosen else 0
    shown = [*range(SHOWN)] if at < SHOWN else [*range(SHOWN - 1), at]
    shown = [each for each in shown if each < len(candidates)]
    left_out = len(candidates) - len(shown) + max(0, len(excluded) - SHOWN)
    return Decision(
        policy,
        chosen,
        tuple(candidates[each] for each in shown),
        term_names,
        tuple(terms[each] for each in shown) if terms else (),
        tuple(excluded[:SHOWN]),
        left_out,
        note,
    )
