"""What the control plane may ask of the gateway that runs in its own process, if one does.

Views run in threads; the live state belongs to the event loop. So a question goes there and its answer comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gateway.pipeline.explain import Explainer
from gateway.routing.snapshot import Snapshot

T = TypeVar("T")

_PATIENCE_S = 5.0


class NotLive(Exception):
    """No gateway with a configuration runs in this process."""


class Live:
    """The running gateway's answers. `open` is called once, on its event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._explainer: Explainer | None = None
        self._snapshot: Callable[[], Snapshot | None] = lambda: None

    def open(self, explainer: Explainer, snapshot: Callable[[], Snapshot | None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._explainer, self._snapshot = explainer, snapshot

    def close(self) -> None:
        self._loop = self._explainer = None

    def ask(self, question: Callable[[Explainer, Snapshot], T]) -> T:
        """The answer to a question, put on the gateway's event loop. Raises NotLive; what the question raises, too."""
        loop, explainer = self._loop, self._explainer
        if loop is None or explainer is None:
            raise NotLive
        running = explainer

        async def answer() -> T:
            snapshot = self._snapshot()
            if snapshot is None:
                raise NotLive
            return question(running, snapshot)

        return asyncio.run_coroutine_threadsafe(answer(), loop).result(_PATIENCE_S)


live = Live()
