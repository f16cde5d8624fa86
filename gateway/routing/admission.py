"""Room in the process at all: how many calls are inside, and how many bytes of request bodies they hold.

Asked before a body is read, so that a crowd is refused before it costs memory. Room at a model is the pool's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.protocol.faults import Fault, FaultKind


class Envelope:
    """The process's places, those of each service within them, and its byte budget.

    A service that `by_service` does not name may take every place.
    """

    __slots__ = ("by_service", "bytes", "calls", "max_bytes", "max_calls", "of_service")

    def __init__(self, max_calls: int, max_bytes: int, by_service: Mapping[str, int] = MappingProxyType({})) -> None:
        self.max_calls = max_calls
        self.max_bytes = max_bytes
        self.by_service = by_service
        self.calls = 0
        self.bytes = 0
        self.of_service = dict.fromkeys(by_service, 0)

    def enter(self, service: str) -> EnvelopeLease:
        """A place, to be released at the call's end. Raises Fault(OVERLOADED)."""
        if self.calls >= self.max_calls:
            raise Fault(FaultKind.OVERLOADED, "The gateway is at its limit of calls at once.", retry_after_s=1.0)
        if service in self.of_service:
            if self.of_service[service] >= self.by_service[service]:
                message = f"The gateway is at its limit of {service} calls at once."
                raise Fault(FaultKind.OVERLOADED, message, retry_after_s=1.0)
            self.of_service[service] += 1
        self.calls += 1
        return EnvelopeLease(self, service)


class EnvelopeLease:
    """One call's place and bytes."""

    __slots__ = ("_bytes", "_envelope", "_is_released", "_service")

    def __init__(self, envelope: Envelope, service: str) -> None:
        self._envelope = envelope
        self._service = service
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
            if self._service in self._envelope.of_service:
                self._envelope.of_service[self._service] -= 1
            self._envelope.bytes -= self._bytes
