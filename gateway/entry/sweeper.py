"""The one timer of all running calls: overdue bodies and calls, readers that stopped, streams that fell silent.

A timer per call would cost more than the rest of its book-keeping; one pass over the running calls every 250 ms costs
a microsecond each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.pipeline.client import Client, Ended

logger = logging.getLogger(__name__)

_PERIOD_S = 0.25
_BODY_FREE_S = 10.0  # a body may be slow for so long
_BODY_RATE = 1024  # bytes a second after that


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the gateway waits for its clients, in seconds."""

    body_s: float
    client_idle_s: float
    silence_s: float


class Sweeper:
    """Watches `running`. `run` never ends by itself."""

    def __init__(self, running: Iterable[Client], patience: Patience, clock: Callable[[], float]) -> None:
        self._running = running
        self._patience = patience
        self._clock = clock

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            try:
                self.sweep(self._clock())
            except Exception:
                logger.exception("sweep failed")

    def sweep(self, now_s: float) -> None:
        """One pass."""
        for client in list(self._running):
            if client.body_since_s is not None and self._is_body_late(client, now_s - client.body_since_s):
                client.cancel(Ended.BODY_TIMEOUT)
            elif now_s >= client.deadline_s:
                client.cancel(Ended.TOTAL_TIMEOUT)
            elif client.stalled_since_s is not None:
                if now_s - client.stalled_since_s >= self._patience.client_idle_s:
                    client.cancel(Ended.SLOW_READER)
            elif client.on_silence is not None and now_s - client.last_write_s >= self._patience.silence_s - _PERIOD_S:
                client.on_silence()

    def _is_body_late(self, client: Client, elapsed_s: float) -> bool:
        is_slow = elapsed_s > _BODY_FREE_S and client.body_bytes < _BODY_RATE * elapsed_s
        return is_slow or elapsed_s > self._patience.body_s
