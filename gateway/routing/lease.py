"""What a running call holds: a place in its pool, and one at the worker that it is at. Each is given back once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.routing.retry import Signal

if TYPE_CHECKING:
    from gateway.routing.decision import Decision
    from gateway.routing.policy import Track
    from gateway.routing.pool import Pool
    from gateway.routing.worker import Worker


class WorkerLease:
    """One attempt's places at one worker, and the way its news reach breaker, budget and policy."""

    __slots__ = (
        "_breaker",
        "_is_finished",
        "_is_released",
        "_is_retry",
        "_pool",
        "_since_s",
        "_size",
        "_tokens",
        "_trial",
        "decision",
        "track",
        "worker",
    )

    def __init__(self, pool: Pool, worker: Worker, size: int, now: float, is_retry: bool, decision: Decision) -> None:
        self.worker = worker
        self.decision = decision
        self.track: Track | None = None
        self._pool = pool
        self._size = size
        self._is_retry = is_retry
        self._breaker = worker.breaker  # an edit of the worker's URL gives it a new one
        self._trial = worker.breaker.begin(now)
        self._since_s = now
        self._tokens = 0
        self._is_finished = self._is_released = False

    def answered(self, now: float) -> None:
        """The first byte of the answer has come."""
        if self.track is not None:
            self.track.answered(now)

    def progressed(self, tokens: int, now: float) -> None:
        """So many tokens of a streamed answer have come by now."""
        self._tokens = tokens
        if self.track is not None:
            self.track.progressed(tokens, now)

    def finish(self, signal: Signal, now: float, tokens: int = 0) -> None:
        """Tell how it went; only the first word counts. The place is kept until `release`."""
        if self._is_finished:
            return
        self._is_finished = True
        if signal is Signal.SUCCESS:
            self._breaker.succeeded(now, self._trial)
            self.worker.rest.succeeded()
        elif signal is Signal.FAILURE:
            self._breaker.failed(now)
        else:
            self._breaker.neutral(self._trial)
        if self.track is not None:
            self.track.ended(signal, tokens or self._tokens, now)
        self._pool._served(self.worker, signal, now, now - self._since_s)

    def release(self) -> None:
        """Give the place back, once; a call that nobody told anything of was neutral."""
        if self._is_released:
            return
        self._is_released = True
        try:
            if not self._is_finished:
                self.finish(Signal.NEUTRAL, self._pool.now)
        finally:  # whatever a policy's track raises: a lost place is lost until the process ends
            self.worker.in_flight -= self._size
            self.worker.cell.add(-self._size, 0)
            if self._is_retry:
                self._pool.budget.ended()
            self._pool.wake()


class CallLease:
    """One call's places in the pool, whatever number of workers it tries."""

    __slots__ = ("_is_released", "_pool", "_size")

    def __init__(self, pool: Pool, size: int) -> None:
        self._pool = pool
        self._size = size
        self._is_released = False

    def release(self) -> None:
        """Give the places back, once."""
        if not self._is_released:
            self._is_released = True
            self._pool.in_flight -= self._size
            self._pool.cell.add(-self._size, 0)
            self._pool.wake()
