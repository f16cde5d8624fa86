"""A TCP proxy in a thread, for cutting off a store that others still need."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Proxy:
    """Passes bytes to `(host, port)` both ways while it is not `cut`; then it ends and refuses connections."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    def restore(self) -> None:
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)

    def cut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        both = {writer, far_writer}
        self._open |= both
        await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))
        self._open -= both

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        self.restore()
        try:
            yield self
        finally:
            self.cut()
            asyncio.run_coroutine_threadsafe(_settle(), self._loop).result(5)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(5)
            self._loop.close()


async def _settle() -> None:
    """Wait for what still ends."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks, timeout=3)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # cut
    finally:
        writer.close()
