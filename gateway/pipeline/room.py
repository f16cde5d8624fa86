"""Waiting for a place at a model, in its queue, for as long as the model lets calls of this priority wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.pipeline.order import Order
from gateway.routing.lease import CallLease, WorkerLease
from gateway.routing.pool import Pool
from gateway.routing.requirement import Need


class Busy(Exception):
    """A pool cannot take the call now, and the call may not wait."""


async def wait_for_room(
    pool: Pool, need: Need, order: Order, clock: Callable[[], float]
) -> tuple[CallLease, WorkerLease]:
    """The leases, once it is this call's turn. Raises Fault OVERLOADED or NO_WORKER."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    since_s = clock()
    ticket = pool.join(need, wake, since_s)
    try:
        async with asyncio.timeout(ticket.until - since_s):
            while (got := ticket.admit(clock())) is None:
                await woken
                woken = loop.create_future()
            return got
    except TimeoutError:
        got = ticket.admit(clock(), is_last=True)
        if got is None:
            waited_s = ticket.until - since_s
            raise pool.overloaded(f"No place became free within {waited_s:g} s.") from None
        return got
    finally:
        ticket.leave()
        order.exchange.queued_s = clock() - since_s
