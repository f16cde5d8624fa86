"""An even stream of calls at the running gateway, bounded in rate and time, and what came of each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.journeys.stack import CHAT, Stack


@dataclass(frozen=True, slots=True)
class Result:
    """One call: when it was sent (seconds since the start), what it got, how long that took."""

    at_s: float
    status: int  # 0: no HTTP answer
    worker: str
    attempts: int
    took_s: float
    retry_after: str | None


@dataclass(slots=True)
class Results:
    calls: list[Result] = field(default_factory=list)

    @property
    def statuses(self) -> Counter[int]:
        return Counter(call.status for call in self.calls)

    def workers(self, after_s: float = 0.0, before_s: float = 1e9) -> Counter[str]:
        """Who answered the calls that were sent between these times."""
        return Counter(call.worker for call in self.calls if after_s <= call.at_s < before_s)


async def load(
    gateway: Stack, key: str, body: dict[str, Any], per_s: float, for_s: float, *, results: Results | None = None
) -> Results:
    """Send calls at this rate, whether earlier ones are answered or not."""
    results = Results() if results is None else results
    start = time.monotonic()
    headers = {"authorization": f"Bearer {key}"}
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=200)

    async def one(client: httpx.AsyncClient) -> None:
        sent = time.monotonic()
        try:
            answer = await client.post(gateway.url + CHAT, json=body, headers=headers)
        except httpx.HTTPError:
            results.calls.append(Result(sent - start, 0, "", 0, time.monotonic() - sent, None))
            return
        head = answer.headers
        worker, attempts = head.get("x-igw-worker", ""), int(head.get("x-igw-attempts", "0"))
        took_s = time.monotonic() - sent
        results.calls.append(
            Result(sent - start, answer.status_code, worker, attempts, took_s, head.get("retry-after"))
        )

    async with httpx.AsyncClient(limits=limits, timeout=30) as client, asyncio.TaskGroup() as tasks:
        number = 0
        while (now := time.monotonic() - start) < for_s:
            if number <= now * per_s:
                tasks.create_task(one(client))
                number += 1
            else:
                await asyncio.sleep(number / per_s - now)
    return results
