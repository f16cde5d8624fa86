"""Whether what was started is of use: the schema is current, the gateway answers."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable
from pathlib import Path

import psycopg

_ANSWER_S = 2.0
_POLL_S = 0.05


def is_schema_current(database_url: str, apps: Iterable[str]) -> bool:
    """Whether the migrations that lie on disk for these apps are all applied: what `migrate` takes two seconds to say.

    An app whose label is not the last part of its name counts as not migrated; then `migrate` decides.
    """
    wanted = {(app.rpartition(".")[2], name) for app in apps for name in _migrations(app)}
    with psycopg.connect(database_url, connect_timeout=5) as connection:
        if connection.execute("select to_regclass('django_migrations')").fetchone() == (None,):
            return False
        return wanted <= set(connection.execute("select app, name from django_migrations").fetchall())


def _migrations(app: str) -> list[str]:
    spec = importlib.util.find_spec(app)
    folders = spec.submodule_search_locations if spec else None
    return [path.stem for folder in folders or () for path in Path(folder, "migrations").glob("[!_]*.py")]


async def until_status(host: str, port: int, path: str, status: int, timeout_s: float) -> bool:
    """True once a GET is answered with `status`, False when `timeout_s` has passed without."""
    try:
        async with asyncio.timeout(timeout_s):
            while await _status(host, port, path) != status:  # noqa: ASYNC110  another process has no event
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
    return True


async def _status(host: str, port: int, path: str) -> int | None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
                return int((await reader.readline()).split()[1])
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, IndexError):
        return None
