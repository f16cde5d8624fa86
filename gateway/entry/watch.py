"""Noticing a lost client on servers that are not ours, where no connection is at hand.

`GuardedProtocol` tells a call directly. Any other ASGI server tells only him who waits in `receive()`: a task does that
once the body was read.
"""

from __future__ import annotations

import asyncio

from gateway.entry.reply import Message, Receive
from gateway.pipeline.client import Client, Ended


class BodyThenDisconnect:
    """`receive` of a request whose body is read once; `watch` then waits for the disconnect."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body_read = asyncio.Event()

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_read.set()
        return message

    async def watch(self, client: Client) -> None:
        """Cancel the client's call when it is gone."""
        await self._body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        client.cancel(Ended.CLIENT_GONE)
