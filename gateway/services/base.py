"""What a service is: how a request is read, how it goes on, and how its answer is watched; bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from gateway.protocol.usage import TokenCount
from gateway.routing.requirement import Facts


class Call(msgspec.Struct, frozen=True):  # a third of what a frozen dataclass costs to make; one a call
    """One request as it was understood. `path` is below /v1; `body` is what the client sent, to the byte."""

    service: str
    model: str
    is_streaming: bool
    body: bytes
    wants_usage: bool  # the client itself asked for token counts in the stream
    path: str
    max_tokens: int | None
    has_stream_options: bool  # the body has that field, whatever is in it


class EventStream(Protocol):
    """Watches the event stream of one answer, and rewrites it where the client must see it otherwise.

    Only whole events go out, so that a stream that breaks can be ended by an error event that a client understands.
    """

    has_event: bool  # a whole event with data came; comments do not count
    is_finished: bool  # the terminal marker was seen
    error: bool  # the worker sent an error event; nothing after it goes out
    usage: TokenCount | None

    @property
    def is_between_events(self) -> bool:
        """Whether a comment may be put into what the client gets now."""

    @property
    def estimated_output_tokens(self) -> int:
        """Tokens that the client got, by rule of thumb."""

    def feed(self, piece: bytes) -> bytes:
        """What the client gets for this piece, however it was cut. Raises Fault STREAM_INTERRUPTED for a huge event."""

    def finish(self) -> bytes:
        """What is still owed to the client when the worker has ended the stream cleanly."""


class WriteBody(Protocol):
    def __call__(self, call: Call, *, model: str | None, ask_usage: bool) -> bytes:
        """The body for a worker that knows the model by this name; the client's own bytes where nothing must change."""


class WatchStream(Protocol):
    def __call__(self, *, wants_usage: bool) -> EventStream: ...


@dataclass(frozen=True, slots=True)
class Service:
    """One thing that workers can be asked for. `usage` raises Fault UPSTREAM_PROTOCOL for an answer that is no JSON."""

    name: str
    path: str  # below /v1
    read: Callable[[bytes], Call]
    body: WriteBody
    usage: Callable[[bytes], TokenCount | None]
    stream: WatchStream
    facts: Callable[[Call], Facts]
