"""What the tests of this folder open exchanges with."""

from __future__ import annotations

from gateway.upstream.answer import Answer
from gateway.upstream.wire import Origin, Wire
from tests.fakes.worker import FakeWorker


class Client:
    """Opens exchanges with one worker with roomy deadlines."""

    def __init__(self, wire: Wire, worker: FakeWorker) -> None:
        self.wire, self.worker = wire, worker

    async def open(self, body: bytes = b"{}", method: str = "POST", **options: object) -> Answer:
        head = f"{method} /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        settings = {"connect_s": 5.0, "first_byte_s": 30.0, "idle_s": 30.0, **options}
        return await self.wire.open(Origin.of(self.worker.url), head + body, **settings)
