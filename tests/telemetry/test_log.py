"""Log lines: their form, and that no secret survives in one."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading

import pytest

from gateway.telemetry.log import CallLog, JsonFormatter, mask

CANARY = "Canary-7f3a_Secret9"
LEAKS = [
    f"sk-{CANARY}",
    f"wrong key sk-igw-abcd1234-{CANARY}, try another",
    f"Authorization: Bearer {CANARY}",
    f"authorization: bearer  {CANARY}\nhost: x",
    f"Proxy-Authorization: Basic {CANARY}==",
    f"{{'authorization': '{CANARY}'}}",
    f'{{"x-api-key": "{CANARY}", "a": 1}}',
    f"[(b'x-api-key', b'{CANARY}'), (b'host', b'x')]",
    f"X-API-Key: {CANARY}",
    f"api_key={CANARY} other=1",
    f"GET /v1/models?key={CANARY}&page=2",
    f"https://host/path?a=1&api-key={CANARY}#top",
    f"https://host/blob?sig={CANARY}",
    f"wss://host/v1/realtime?access_token={CANARY}",
    f"redis://:{CANARY}@host:6379/0",
    f"postgresql://igw:{CANARY}@127.0.0.1/igw",
    f"postgresql://igw:p/{CANARY}@w@127.0.0.1/igw",
    f"cookie: igw-session={CANARY}; other={CANARY}",
    f"Set-Cookie: igw-session={CANARY}; Path=/",
    f"password={CANARY} host=127.0.0.1",
    f"client_secret: {CANARY}",
    f"Bearer%20{CANARY}",
]
HARMLESS = [
    "pool deepseek-v3: 2 unhealthy, 1 breaker open",
    "http://10.0.0.5:30000/v1/chat/completions?stream=true answered 503",
    "max_tokens: 100, prompt tokens=12",
    "task-force risk-free desk",
    "The bearer of this note.",
]


def formatted(message: object, *args: object, exc_info: object = None, **extra: object) -> dict[str, object]:
    record = logging.LogRecord("igw.test", logging.WARNING, __file__, 1, message, args, exc_info)  # type: ignore[arg-type]
    record.__dict__.update(extra, created=1_700_000_000.0425)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


@pytest.mark.parametrize("text", LEAKS)
def test_mask_of_a_secret_leaves_none_of_it(text: str) -> None:
    assert "***" in mask(text)
    assert CANARY not in mask(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_mask_of_harmless_text_changes_little(text: str) -> None:
    assert mask(text) == text.replace("The bearer of", "The bearer ***")


def test_mask_keeps_what_surrounds_the_secret() -> None:
    assert mask(f"GET postgresql://igw:{CANARY}@db/igw?key={CANARY}&a=1") == "GET postgresql://***@db/igw?key=***&a=1"


def test_formatter_writes_time_level_logger_message_and_fields() -> None:
    assert formatted("pool %s changed", "m", fields={"pool": "m", "level": "mine", "n": 2, "when": None}) == {
        "time": "2023-11-14T22:13:20.042Z",
        "level": "warning",
        "logger": "igw.test",
        "message": "pool m changed",
        "pool": "m",
        "n": 2,
        "when": None,
    }


@pytest.mark.parametrize("text", LEAKS)
def test_formatter_masks_message_arguments_fields_and_exception(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        line = formatted(
            "met %s", text, exc_info=sys.exc_info(), fields={"a": text, "b": {"c": [text, (text,)]}, text: 1}
        )
    assert CANARY not in json.dumps(line)
    assert "ValueError" in str(line["exception"])


def test_formatter_masks_fields_by_their_name() -> None:
    line = formatted("x", fields={"Authorization": CANARY, "api_key": CANARY, "igw_token": [CANARY], "tokens": 3})
    assert CANARY not in json.dumps(line)
    assert line["tokens"] == 3


def test_formatter_survives_odd_fields() -> None:
    deep: dict[str, object] = {}
    deep["self"] = deep
    line = formatted("\ud800", fields={1: b"\xff", "deep": deep, "big": 10**40, "object": object, "nan": float("nan")})
    assert line["message"] == "\ud800"
    assert {"1", "deep", "big", "object", "nan"} <= line.keys()


async def lines_of(log: CallLog, written: list[bytes]) -> list[dict[str, object]]:
    await log.close()
    return [json.loads(line) for line in b"".join(written).splitlines()]


async def test_call_log_writes_each_line_once_in_order_and_flushes_at_close() -> None:
    written: list[bytes] = []
    log = CallLog(written.append)
    running = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    for number in range(1300):
        log.append({"n": number})
    running.cancel()
    lines = await lines_of(log, written)
    assert [line["n"] for line in lines] == list(range(1300))
    assert {line["logger"] for line in lines} == {"igw.call"}
    assert max(map(len, written)) <= 4096
    assert all(piece.endswith(b"\n") for piece in written)


@pytest.mark.parametrize("text", LEAKS)
async def test_call_log_masks_what_clients_chose(text: str) -> None:
    written: list[bytes] = []
    log = CallLog(written.append)
    running = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    log.append({"model": text, "status": 404})
    running.cancel()
    (line,) = await lines_of(log, written)
    assert CANARY not in json.dumps(line)
    assert line["status"] == 404


async def test_call_log_with_a_blocked_writer_drops_beyond_its_limit_and_says_so() -> None:
    is_blocked, may_write = threading.Event(), threading.Event()
    written: list[bytes] = []

    def write(data: bytes) -> None:
        is_blocked.set()
        assert may_write.wait(10)
        written.append(data)

    log = CallLog(write, limit_lines=600)
    for number in range(513):
        log.append({"n": number})
    running = asyncio.create_task(log.run())
    assert await asyncio.to_thread(is_blocked.wait, 10)
    for number in range(513, 2000):
        log.append({"n": number})
    assert log.dropped == 2000 - 512 - 600
    may_write.set()
    running.cancel()
    lines = await lines_of(log, written)
    assert [line["n"] for line in lines if "n" in line] == list(range(512 + 600))
    assert [line["dropped"] for line in lines if "dropped" in line] == [log.dropped]


async def test_call_log_close_does_not_wait_for_a_writer_that_never_returns() -> None:
    may_write = threading.Event()
    log = CallLog(lambda data: may_write.wait(10))
    running = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    log.append({"n": 1})
    running.cancel()
    async with asyncio.timeout(5):
        await log.close(0.05)
    may_write.set()
