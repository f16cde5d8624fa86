"""A call's way through a group: one member after the other, until one answers or what one says ends it.

A member that would have to make the call wait is passed over while others are free; when nobody was, the first such one
is waited for. Each is asked once, with the retries of its own pool. From the first byte on there is no way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from gateway.pipeline.client import Headers
from gateway.pipeline.inquiry import Ask, Inquirer
from gateway.pipeline.order import Order, RoutingHeaders
from gateway.pipeline.refusal import PassedOn
from gateway.pipeline.room import Busy
from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.classes import Refusal, read_failure, read_refusal
from gateway.routing.groups import Asked, Groups, Step, Walk
from gateway.routing.intent import LIMIT_S, question
from gateway.routing.references import find
from gateway.routing.requirement import Facts
from gateway.routing.rules import Caller
from gateway.routing.snapshot import GroupSpec, KeySpec, PoolSpec, Snapshot
from gateway.routing.strategies import Standing
from gateway.routing.table import Table

_BUSY = "busy"


class Members:
    """All groups of a process. `inquirer` asks classifiers; `random` gives numbers in [0, 1)."""

    def __init__(
        self,
        table: Table,
        inquirer: Inquirer,
        random: Callable[[], float],
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._inquirer = inquirer
        self._clock = clock
        self._unix_clock = unix_clock
        self._groups = Groups(self._standing, random)

    def keep(self, groups: Iterable[GroupSpec]) -> None:
        """These are the groups from now on."""
        self._groups.strategies.keep(list(groups))

    def plan(
        self,
        snapshot: Snapshot,
        group: GroupSpec,
        key: KeySpec,
        headers: Headers,
        facts: Facts,
        routing: RoutingHeaders,
        conversation: str | None,
    ) -> Walk:
        """The way that a call would take now, without asking a classifier."""
        asked = Asked(facts, _caller(key, headers), routing.key or conversation)
        return self._groups.plan(snapshot, group, asked, self._clock())

    async def walk(self, order: Order, group: GroupSpec, ask: Ask) -> None:
        """Have the group answer the call. Raises PassedOn or Fault when it did not."""
        caller = _caller(order.key, order.headers)
        asked = Asked(order.facts(), caller, order.routing.key or order.exchange.conversation_id or None)
        asked = await self._with_intent(order, group, asked, ask)
        walk = self._groups.plan(order.snapshot, group, asked, self._clock())
        self._groups.began(walk)
        try:
            await self._ask_all(order, walk, ask)
        finally:
            order.exchange.route = walk.trace()
            usage = order.exchange.usage
            if walk.current is not None and order.exchange.ttft_s is not None:
                self._groups.spent(walk.current, usage.input_tokens + usage.output_tokens, self._clock())

    async def _ask_all(self, order: Order, walk: Walk, ask: Ask) -> None:
        failures = _Failures()
        busy: list[Step] = []
        for step, may_wait in _rounds(walk.steps, busy):
            left = self._left(order, walk.group)
            if left is not None and left <= 0:
                break
            walk.current = step
            try:
                await ask(order, step.pool, may_wait=may_wait, attempts=left)
            except Busy:
                step.result = _BUSY
                busy.append(step)
                continue
            except PassedOn as refused:
                reading = read_refusal(walk.group.error_classes, refused.status, refused.body, order.call.body)
                step.result = f"status {refused.status}"
                if not reading.moves_on:
                    raise
                failures.add(reading, refused.status == 429, refused.retry_after_s(self._unix_clock()))
            except Fault as fault:
                step.result = fault.message
                reading = read_failure(fault)
                if order.exchange.ttft_s is not None or not reading.moves_on:
                    raise
                failures.add(reading, fault.status == 429, fault.retry_after_s)
            else:
                step.result = "answered"
                self._groups.succeeded(walk, step, self._clock())
                return
        order.hide(b"x-igw-model")
        raise failures.fault(walk)

    def _left(self, order: Order, group: GroupSpec) -> int | None:
        return None if group.max_attempts is None else group.max_attempts - len(order.exchange.attempts)

    async def _with_intent(self, order: Order, group: GroupSpec, asked: Asked, ask: Ask) -> Asked:
        """Ask the group's classifier if a rule wants to know; no answer in time is no intent."""
        groups, now = self._groups, self._clock()
        if not groups.wants_intent(group, asked, now):
            return asked
        text, previous = asked.facts.text, groups.previous_intent(group, asked, now)
        intent = groups.intents.known(group, text, previous, now)
        if intent is None:
            target = find(order.snapshot, group.intent_model or "")
            body = None
            if isinstance(target, PoolSpec):
                body = await self._inquirer.ask(order, target, question(group, text, previous), ask, LIMIT_S)
            intent = groups.intents.learn(group, text, previous, body, self._clock())
        return replace(asked, intents={group.id: intent})

    def _standing(self, spec: PoolSpec, now: float) -> Standing:
        pool = self._table.pool(spec)
        quotas = [worker.quota for worker in pool.workers if worker.quota is not None]
        known = [quota for quota in quotas if quota.renews_at > now]
        best = min(known, key=lambda quota: quota.used, default=None)
        if best is not None:
            return Standing(pool.is_resting(now), best.used, best.renews_at)
        return Standing(pool.is_resting(now), 0.0 if quotas else None)  # renewed since it was told


def _rounds(steps: list[Step], busy: list[Step]) -> Iterable[tuple[Step, bool]]:
    """Every step without waiting, then the first busy one for as long as it takes."""
    for step in steps:
        yield step, False
    if busy:
        yield busy[0], True


def _caller(key: KeySpec, headers: Headers) -> Caller:
    return Caller(key.team, key.name, key.team_id, tuple(headers))


@dataclass(slots=True)
class _Failures:
    """What the members that were asked came to."""

    readings: list[Refusal] = field(default_factory=list)
    is_full: bool = True  # every one of them was merely full, or refused by a limit
    retry_after_s: float | None = None

    def add(self, reading: Refusal, is_full: bool, retry_after_s: float | None) -> None:
        self.readings.append(reading)
        self.is_full = self.is_full and is_full
        if retry_after_s is not None:
            self.retry_after_s = min(retry_after_s, self.retry_after_s or retry_after_s)

    def fault(self, walk: Walk) -> Fault:
        """All failed, with a line for each."""
        lines = walk.lines() or ["it has no member that can be asked"]
        message = "\n".join([f"No member of {walk.group.name} answered:", *lines])
        if self.readings and self.is_full:
            return Fault(FaultKind.OVERLOADED, message, retry_after_s=self.retry_after_s or 1.0)
        is_final = bool(self.readings) and not any(reading.is_passing for reading in self.readings)
        return Fault(FaultKind.ALL_FAILED, message, retry_after_s=self.retry_after_s, is_final=is_final)
