"""Room in the process at all: how many calls are inside, and how many bytes of request bodies they hold.

Asked before a body is read, so that a crowd is refused before it costs memory. Room at a model is the pool's.
"""

from __future__ import annotations

from gateway.protocol.faults import Fault, FaultKind


class Envelope:
    """The process's places and its byte budget."""

    __slots__ = ("bytes", "calls", "max_bytes", "max_calls")

    def __init__(self, max_calls: int, max_bytes: int) -> None:
        self.max_calls = max_calls
        self.max_bytes = max_bytes
        self.calls = 0
        self.bytes = 0

    def enter(self) -> EnvelopeLease:
        """A place, to be released at the call's end. Raises Fault(OVERLOADED)."""
        if self.calls >= self.max_calls:
            raise Fault(FaultKind.OVERLOADED, "The gateway is at its limit of calls at once.", retry_after_s=1.0)
        self.calls += 1
        return EnvelopeLease(self)


class EnvelopeLease:
    """One call's place and bytes."""

    __slots__ = ("_bytes", "_envelope", "_is_released")

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._bytes = 0
        self._is_released = False

    def grow(self, n: int) -> None:
        """Hold `n` bytes more. Raises Fault(OVERLOADED) and holds what it held when the budget is spent."""
        envelope = self._envelope
        if envelope.bytes + n > envelope.max_bytes:
            message = "The gateway holds as many request bytes as it may."
            raise Fault(FaultKind.OVERLOADED, message, retry_after_s=1.0)
        envelope.bytes += n
        self._bytes += n

    def release(self) -> None:
        """Give everything back, once."""
        if not self._is_released:
            self._is_released = True
            self._envelope.calls -= 1
            self._envelope.bytes -= self._bytes
