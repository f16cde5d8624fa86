"""What a backend is: how one kind of worker or vendor is asked."""

from __future__ import annotations

from typing import Protocol

from gateway.routing.snapshot import WorkerSpec


class Adapter(Protocol):
    def head(self, worker: WorkerSpec, path: str) -> bytes:
        """The request line and the headers that are the same for every call; no content-length, no empty line.

        `path` is below /v1. Raises Fault UPSTREAM_AUTH when the worker's address or credential cannot be sent.
        """
