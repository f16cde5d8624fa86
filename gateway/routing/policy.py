"""What a balancing rule is. Each is a file in `policies`, which knows nothing of sockets, clocks or configuration.

A policy chooses without changing anything, and is told apart from that what became of its choice. So that a rule may be
asked "where would this go?" at any time:

    choose      which of these candidates, and the terms that decided        changes nothing
    taken       the worker was chosen and counted                            may return a Track that follows the attempt
    Track       first byte, progress, end of that attempt
    keep        the pool has these workers from now on                       what was learnt of others is forgotten

Time is an argument (monotonic seconds). One policy object serves one pool of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from gateway.routing.requirement import Need
from gateway.routing.retry import Signal
from gateway.routing.worker import Worker

Terms = tuple[float, ...]  # in the order of `Policy.term_names`


class Track(Protocol):
    """Follows one attempt at one worker. Called in this order; `answered` at most once, `ended` exactly once."""

    def answered(self, now: float) -> None:
        """The first byte of the answer has come."""

    def progressed(self, tokens: int, now: float) -> None:
        """So many tokens of the answer have come by now, in all. For streams only, as often as pieces come."""

    def ended(self, signal: Signal, tokens: int, now: float) -> None:
        """The attempt is over: what the breaker was told of it, and the tokens that came."""


class Policy:
    """A balancing rule. Only `choose` must be given; the rest does nothing unless a rule learns or remembers."""

    __slots__ = ()

    term_names: ClassVar[tuple[str, ...]] = ()  # with units where they have one: `ttft_s`
    remembers_keys: ClassVar[bool] = False  # what it knows of a key is shared between processes
    binds_late: ClassVar[bool] = False  # `would_wait` is worth asking

    def choose(self, candidates: Sequence[Worker], need: Need, now: float) -> tuple[Worker, Sequence[Terms]]:
        """One of the candidates, and the terms of each in the same order (or none at all).

        There is at least one candidate; they are below their caps and in the pool's order. Changes nothing.
        """
        raise NotImplementedError

    def taken(self, worker: Worker, need: Need, now: float) -> Track | None:
        """`worker` serves this call, whether it was chosen or the only candidate. Its counts include the call already.

        Not called in a pool of one worker.
        """
        return None

    def keep(self, workers: Sequence[Worker]) -> None:
        """The pool's workers, of which some may be new and others gone. Called before anything else, and on edits."""

    def would_wait(
        self, candidates: Sequence[Worker], full: Sequence[Worker], need: Need, now: float, rank: int
    ) -> bool:
        """Whether this call does better to wait for one of the `full` workers than to go to a candidate now.

        `rank` is the number of calls that wait before it. Changes nothing.
        """
        return False
