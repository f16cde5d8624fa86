"""A worker's answer that is not a success: what of it may reach the client, and in which form.

A 4xx about the request passes unchanged, status and body. What concerns the gateway's own credential, a redirect, or
an error page that is no JSON is told in our words. Nothing that passes may name the worker's address or credential.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from gateway.pipeline.client import sent
from gateway.pipeline.exchange import Outcome
from gateway.pipeline.order import Order
from gateway.protocol.faults import Fault, FaultKind
from gateway.protocol.jsonfacts import is_json_object
from gateway.protocol.quotas import read_retry_after
from gateway.routing.retry import Reading
from gateway.routing.snapshot import WorkerSpec


class PassedOn(Exception):
    """An answer of a worker with an error status, held until it is known whether another worker does better."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, reading: Reading) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.reading = reading
        self.body = body
        self._headers = headers

    def retry_after_s(self, unix_s: float) -> float | None:
        """How long the worker said to wait, if it did."""
        values = (value for name, value in self._headers if name == b"retry-after")
        value = next(values, None)
        return None if value is None else read_retry_after(value, unix_s)

    async def deliver(self, order: Order) -> None:
        """Give the answer to the client as the call's end."""
        exchange, client = order.exchange, order.client
        exchange.outcome = Outcome.REJECTED if self.status < 500 and not self.reading.is_retryable else Outcome.FAILED
        exchange.error_code = f"upstream_{self.status}"
        fault = self._in_our_words()
        if fault is None and client.is_started:  # comments went out already: the body becomes the error event
            await client.fail(Fault(FaultKind.UPSTREAM_STATUS, f"The worker answered with status {self.status}."), [])
            return
        if fault is not None:
            exchange.status, exchange.error_code = fault.status, fault.code
            await client.fail(fault, order.answer_head())
            return
        exchange.status = self.status
        exchange.response_bytes = len(self.body)
        exchange.response_body = self.body
        length = (b"content-length", b"%d" % len(self.body))
        await sent(client.start(self.status, [*self._headers, length, *order.answer_head()]))
        await sent(client.end(self.body))

    def _in_our_words(self) -> Fault | None:
        if self.status in (401, 403):
            return Fault(
                FaultKind.UPSTREAM_AUTH, "The worker refused the gateway's own credential; an operator must mend it."
            )
        if 300 <= self.status < 400:
            return Fault(FaultKind.UPSTREAM_PROTOCOL, "The worker answered with a redirect, which is not followed.")
        is_page = any(name == b"content-type" and b"html" in value.lower() for name, value in self._headers)
        if is_page or (self.status >= 500 and not is_json_object(self.body)):
            return Fault(FaultKind.UPSTREAM_STATUS, f"The worker answered with status {self.status}.")
        return None


def redacted(text: bytes, spec: WorkerSpec) -> bytes:
    """`text` without the worker's credential, address and host name."""
    parts = urlsplit(spec.url)
    secrets = [spec.credential or "", spec.url, parts.netloc, parts.hostname or ""]
    for secret in secrets:
        if len(secret) > 2:
            text = text.replace(secret.encode(), b"[redacted]")
    return text
