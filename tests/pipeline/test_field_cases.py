"""Public bug reports as black-box cases, those that other files do not show already.

1 cut characters        here over the wire; any cut at all in tests/services/test_text_stream.py
2, 3 usage chunk        tests/services/test_text_stream.py, test_chat_call.py
4 break after content   test_chat_call.py: ...broken_after_content...
5, 6 silence            test_chat_call.py: ...begins_badly..., ...silence_is_filled...
7, 8 client leaves      test_client_gone.py
9, 10 attempts, fatal   test_chat_call.py: ...exactly_the_attempts_allowed, ...clients_mistake...
12, 14 limits, keys     tests/journeys/test_calls.py, tests/entry/test_http.py
16 secrets, upstreams   test_chat_call.py: ...without_addresses, and here
17, 18, 19 fidelity     tests/services/test_text_stream.py
21 configuration        tests/runtime, and here
"""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.pipeline.exchange import Outcome
from tests.fakes.scripts import Pause, Script, Send, chat, chat_stream, chunk, split_at, status
from tests.fakes.worker import FakeWorker
from tests.pipeline.rig import pool_of, running

STREAM = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
TEXT = "héllo 北京今天多云 👩‍👩‍👧 end"


def _text(raw: str) -> str:
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


async def test_characters_cut_anywhere_arrive_whole() -> None:
    event = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': TEXT}}]}, ensure_ascii=False)}\n\n"
    ending = [step for step in chat_stream([]).steps if isinstance(step, Send)]
    first = event.encode()
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        for cut in range(1, len(first)):
            pieces = [ending[0], Send(chunk(first[:cut])), Pause(0.001), Send(chunk(first[cut:])), *ending[1:]]
            worker.next(Script(pieces))
            answer = await rig.post(STREAM)
            assert _text(answer.content.decode()) == TEXT
        exchange = await rig.ended(len(first) - 1)
        assert TEXT.encode() in exchange.response_body
        assert "\ufffd" not in exchange.response_body.decode()


async def test_answer_cut_anywhere_in_its_head_or_body_arrives_whole() -> None:
    whole = chat("ok")
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        for cut in range(1, len(whole.data), 3):
            worker.next(split_at(cut, whole))
            answer = await rig.post({**STREAM, "stream": False})
            assert whole.data.endswith(answer.content)
            assert answer.status_code == 200


async def test_fields_that_name_an_upstream_contact_nobody_else() -> None:
    async with FakeWorker() as worker, FakeWorker() as trap, running(pool_of(worker)) as rig:
        tricks = {"api_base": trap.url, "base_url": trap.url, "api_key": "sk-x", "extra_headers": {"host": "evil"}}

        answer = await rig.post({**STREAM, **tricks}, x_forwarded_host=trap.url)

        assert answer.status_code == 200
        assert (len(worker.requests), trap.connections) == (1, 0)
        assert worker.requests[0].header("host") == worker.url.removeprefix("http://")
        assert worker.requests[0].header("authorization") == "Bearer sk-upstream"


async def test_running_call_finishes_on_what_it_started_with() -> None:
    async with FakeWorker(chat_stream(["a"] * 20, gap_s=0.01)) as old, FakeWorker() as new:
        async with running(pool_of(old)) as rig:
            running_call = asyncio.create_task(rig.post(STREAM))
            await old.until(lambda: old.requests)

            rig.use([pool_of(new)])
            after = await rig.post(STREAM)

            assert _text((await running_call).text) == "a" * 20
            assert _text(after.text) == "hello"
            assert (len(old.requests), len(new.requests)) == (1, 1)
            rig.use([])
            assert (await rig.post(STREAM)).json()["error"]["code"] == "model_not_found"
            assert rig.is_idle()


@pytest.mark.parametrize("size", [255 * 1024, 300 * 1024, 3 * 2**20])
async def test_large_whole_answer_passes_byte_for_byte(size: int) -> None:
    body = json.dumps({"choices": [], "pad": "x" * size}).encode()
    async with FakeWorker(status(200, body=body)) as worker, running(pool_of(worker)) as rig:
        answer = await rig.post({**STREAM, "stream": False})

        assert answer.content == body
        exchange = await rig.ended()
        assert (exchange.outcome, exchange.response_bytes) == (Outcome.COMPLETED, len(body))
        assert exchange.is_truncated == (len(body) > 2**20)


async def test_large_answer_cut_in_its_middle_is_no_whole_answer_for_the_client() -> None:
    whole = status(200, body=b"x" * 600_000)
    cut = Script([Send(whole.data[:400_000]), Pause(0.05)])
    async with (
        FakeWorker(Script([*cut.steps, *split_at(1, whole).steps[:0]])) as worker,
        running(pool_of(worker)) as rig,
    ):
        reader, writer = await rig.connect(json.dumps({**STREAM, "stream": False}).encode())
        await worker.until(lambda: worker.requests)

        received = await reader.read(-1)

        assert b"content-length: 600000" in received
        assert len(received) < 600_000
        assert (await rig.ended()).outcome is Outcome.INTERRUPTED
        writer.close()


async def test_client_that_closes_its_sending_side_is_served_or_cut_but_never_kept() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        _, writer = await rig.connect(json.dumps(STREAM).encode())
        writer.write_eof()

        await rig.ended()

        assert rig.is_idle()
        writer.close()
