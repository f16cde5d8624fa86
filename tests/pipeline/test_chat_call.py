"""One chat call from the wire to the wire."""

from __future__ import annotations

import json

import openai
import pytest

from gateway.pipeline.exchange import Outcome, UsageSource
from gateway.routing.options import QueueOptions, RetryOptions
from tests.fakes.scripts import Pause, Reset, Script, Send, Stall, chat, chat_stream, cut_after, raw, status
from tests.fakes.worker import FakeWorker
from tests.pipeline.rig import SHORT, pool_of, running

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**ASK, "stream": True}


async def test_chat_whole_answer_passes_byte_for_byte() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        worker.next(status(200, body=b'{"usage" : {"prompt_tokens":3,"completion_tokens":4},  "odd":[1.50e0]}'))

        answer = await rig.post(ASK, x_request_id="abc")

        assert answer.status_code == 200
        assert answer.content == b'{"usage" : {"prompt_tokens":3,"completion_tokens":4},  "odd":[1.50e0]}'
        assert answer.headers.get_list("x-request-id") == ["abc"]
        assert (answer.headers["x-igw-model"], answer.headers["x-igw-worker"]) == ("m", "w1")
        exchange = await rig.ended()
        assert (exchange.outcome, exchange.status, exchange.worker) == (Outcome.COMPLETED, 200, "w1")
        assert (exchange.usage.input_tokens, exchange.usage.output_tokens) == (3, 4)
        assert exchange.usage.source is UsageSource.UPSTREAM
        assert rig.is_idle()


async def test_chat_request_reaches_the_worker_unchanged_but_for_the_model() -> None:
    body = b'{ "messages":[{"role":"user","content":"hi"}] , "model" : "alias", "x":1.0, "unknown":{"a":[]} }'
    async with FakeWorker() as worker, running(pool_of(worker, aliases=("alias",))) as rig:
        answer = await rig.post(
            body,
            cookie="c=1",
            x_igw_priority="batch",
            traceparent="00-a-b-01",
            x_forwarded_host="evil",
            x_request_id="id-1",
        )

        assert answer.status_code == 200
        sent = worker.requests[0]
        assert sent.body == body.replace(b'"alias"', b'"m"')
        names = sorted(name for name, _ in sent.headers)
        assert sent.header("authorization") == "Bearer sk-upstream"
        assert sent.header("x-request-id") == "id-1"
        assert sent.header("traceparent") == "00-a-b-01"
        assert rig.key not in sent.head.decode()
        assert not {"cookie", "x-igw-priority", "x-forwarded-host", "x-api-key"} & set(names)
        assert len(names) == len(set(names))


async def test_chat_stream_through_the_sdk_gives_the_text_and_no_usage_chunk() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        pieces = []
        async for chunk in await rig.openai().chat.completions.create(**STREAM):
            assert chunk.usage is None
            pieces += [choice.delta.content or "" for choice in chunk.choices]

        assert "".join(pieces) == "hello"
        assert json.loads(worker.requests[0].body)["stream_options"] == {"include_usage": True}
        exchange = await rig.ended()
        assert (exchange.usage.input_tokens, exchange.usage.output_tokens) == (5, 2)
        assert exchange.usage.source is UsageSource.UPSTREAM
        assert (exchange.outcome, exchange.is_streaming) == (Outcome.COMPLETED, True)
        assert b"data: [DONE]" in exchange.response_body


async def test_chat_stream_usage_is_shown_to_the_client_that_asked() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        stream = await rig.openai().chat.completions.create(**STREAM, stream_options={"include_usage": True})

        chunks = [chunk async for chunk in stream]

        assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert chunks[-1].choices == []


async def test_chat_stream_without_stream_options_trait_is_estimated() -> None:
    async with FakeWorker() as worker, running(pool_of(worker, asks_stream_usage=False)) as rig:
        answer = await rig.post(STREAM)

        assert answer.status_code == 200
        assert "stream_options" not in json.loads(worker.requests[0].body)
        assert (await rig.ended()).usage.source is UsageSource.ESTIMATED


@pytest.mark.parametrize(
    "failure",
    [
        status(500),
        status(503),
        status(429, {"Retry-After": "7"}),
        Script([Reset()]),
        Script([Stall()]),
        raw(b"SSH-2.0\r\n"),
        raw(b"HTTP/1.1 302 Found\r\nlocation: http://evil/\r\ncontent-length: 0\r\n\r\n"),
        status(401),
        cut_after(60, chat()),
    ],
    ids=["500", "503", "429", "reset", "stall", "no http", "redirect", "401", "cut in the head"],
)
@pytest.mark.parametrize("ask", [ASK, STREAM], ids=["whole", "stream"])
async def test_chat_failure_before_the_first_byte_moves_to_another_worker(
    failure: Script, ask: dict[str, object]
) -> None:
    async with FakeWorker() as first, FakeWorker() as second, running(pool_of(first, second)) as rig:
        first.next(failure)

        answer = await rig.post(ask)

        assert answer.status_code == 200
        assert answer.headers["x-igw-attempts"] == "2"
        assert (len(first.requests), len(second.requests)) == (1, 1)
        exchange = await rig.ended()
        assert [attempt.worker for attempt in exchange.attempts] == ["w1", "w2"]
        assert (exchange.worker, exchange.attempts[1].outcome) == ("w2", "ok")
        assert rig.is_idle()


async def test_chat_whole_answer_that_is_no_json_moves_to_another_worker() -> None:
    async with FakeWorker() as first, FakeWorker() as second, running(pool_of(first, second)) as rig:
        first.next(status(200, body=b"not json"))

        answer = await rig.post(ASK)

        assert (answer.status_code, answer.headers["x-igw-attempts"]) == (200, "2")


@pytest.mark.parametrize("failure", ["silence", "error event", "nothing"])
async def test_chat_stream_that_begins_badly_moves_to_another_worker(failure: str) -> None:
    head = Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    error = b'data: {"error":{"message":"overloaded"}}\n\n'
    script = {
        "silence": Script([head, Stall()]),
        "error event": Script([head, Send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(error), error))]),
        "nothing": Script([head, Send(b"0\r\n\r\n")]),
    }[failure]
    async with FakeWorker() as first, FakeWorker() as second, running(pool_of(first, second)) as rig:
        first.next(script)

        answer = await rig.post(STREAM)

        assert (answer.status_code, answer.headers["x-igw-attempts"]) == (200, "2")
        assert "overloaded" not in answer.text
        if failure == "silence":
            await first.until(lambda: first.closed_by_peer)


@pytest.mark.parametrize("code", [400, 404, 409, 413, 415, 422])
async def test_chat_clients_mistake_passes_with_status_and_body(code: int) -> None:
    body = b'{"error": {"message":"too  long","type":"invalid_request_error","param":"messages","code":"x"}}'
    async with FakeWorker() as first, FakeWorker() as second, running(pool_of(first, second)) as rig:
        first.next(status(code, body=body))

        answer = await rig.post(ASK)

        assert (answer.status_code, answer.content) == (code, body)
        assert len(second.requests) == 0
        exchange = await rig.ended()
        assert exchange.outcome is Outcome.REJECTED
        assert next(iter(rig.table.workers())).breaker.state(0).value == "closed"


async def test_chat_every_worker_failing_gives_one_answer_without_addresses() -> None:
    async with FakeWorker() as first, FakeWorker() as second, running(pool_of(first, second)) as rig:
        for worker in (first, second):
            leak = f'{{"error":{{"message":"{worker.url} sk-upstream 127.0.0.1"}}}}'
            worker.default = status(500, body=leak.encode())

        answer = await rig.post(ASK)

        assert answer.status_code == 500
        assert "[redacted]" in answer.text
        for secret in ("sk-upstream", "127.0.0.1", str(first.port), str(second.port)):
            assert secret not in answer.text
        assert (await rig.ended()).outcome is Outcome.FAILED


async def test_chat_429_of_the_last_worker_passes_with_retry_after() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        worker.next(status(429, {"Retry-After": "7"}))

        answer = await rig.post(ASK)

        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


async def test_chat_own_credential_refused_is_not_shown_as_the_clients() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        worker.next(status(401))

        answer = await rig.post(ASK)

        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_misconfigured")


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_chat_upstream_calls_are_exactly_the_attempts_allowed(attempts: int) -> None:
    async with FakeWorker(status(500)) as a, FakeWorker(status(500)) as b, FakeWorker(status(500)) as c:
        async with running(pool_of(a, b, c, retry=RetryOptions(max_attempts=attempts))) as rig:
            answer = await rig.post(ASK)

            assert answer.status_code == 500
            assert len(a.requests) + len(b.requests) + len(c.requests) == attempts


@pytest.mark.parametrize("ending", ["reset", "clean", "stall", "error event"])
async def test_chat_stream_broken_after_content_ends_with_one_error_event(ending: str) -> None:
    content = chat_stream(["a", "b", "c"], finish=False, done=False)
    steps = {
        "reset": [*content.steps[:-1], Pause(0.02), Reset()],
        "clean": content.steps,
        "stall": [*content.steps[:-1], Stall()],
        "error event": [*content.steps[:-1], Send(b'29\r\ndata: {"error":{"message":"overloaded"}}\n\n\r\n0\r\n\r\n')],
    }[ending]
    async with FakeWorker(Script(steps)) as first, FakeWorker() as second, running(pool_of(first, second)) as rig:
        text = ""

        async def read() -> None:
            nonlocal text
            async for chunk in await rig.openai().chat.completions.create(**STREAM):
                text += "".join(choice.delta.content or "" for choice in chunk.choices)

        with pytest.raises(openai.APIError) as raised:
            await read()

        assert text == "abc"
        assert not isinstance(raised.value, openai.APIConnectionError)
        assert len(second.requests) == 0
        exchange = await rig.ended()
        assert exchange.outcome is Outcome.INTERRUPTED
        assert exchange.response_body.count(b'"content"') == 3
        assert exchange.usage.source is UsageSource.ESTIMATED
        assert b"[DONE]" not in exchange.response_body
        assert rig.is_idle()


async def test_chat_broken_stream_has_no_final_chunk_on_the_wire() -> None:
    broken = Script([*chat_stream(["a"], finish=False, done=False).steps])
    async with FakeWorker(broken) as worker, running(pool_of(worker)) as rig:
        reader, writer = await rig.connect(json.dumps(STREAM).encode())

        received = await reader.read(-1)

        assert received.count(b'"stream_interrupted"') == 1
        assert not received.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in received
        writer.close()


async def test_chat_silence_is_filled_with_comments_and_failover_goes_on_behind_them() -> None:
    head = Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    timeouts = SHORT
    slow = Script([head, Stall()])
    async with FakeWorker(slow) as first, FakeWorker() as second:
        async with running(pool_of(first, second, timeouts=timeouts), silence_s=0.3) as rig:
            reader, writer = await rig.connect(json.dumps(STREAM).encode())

            received = await reader.readuntil(b"[DONE]")

            assert received.index(b": ping\n\n") < received.index(b"hel")
            assert received.count(b"HTTP/1.1 200") == 1
            assert (await rig.ended()).worker == "w2"
            writer.close()


async def test_chat_pool_at_its_cap_refuses_at_once_without_a_queue() -> None:
    async with (
        FakeWorker(Script([Stall()])) as worker,
        running(pool_of(worker, max_in_flight=1, queue=QueueOptions(size=0))) as rig,
    ):
        _, writer = await rig.connect(json.dumps(ASK).encode())
        await worker.until(lambda: worker.requests)

        answer = await rig.post(ASK)

        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "router_overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        writer.close()
        await rig.until(rig.is_idle)


async def test_chat_waiting_call_is_served_when_a_place_is_free() -> None:
    queue = QueueOptions(size=1, timeout_s=5)
    async with FakeWorker() as worker, running(pool_of(worker, max_in_flight=1, queue=queue)) as rig:
        worker.next(chat("slow", delay_s=0.3), chat("second"))
        _, writer = await rig.connect(json.dumps(ASK).encode())
        await worker.until(lambda: worker.requests)

        answer = await rig.post(ASK)

        assert answer.json()["choices"][0]["message"]["content"] == "second"
        await rig.ended(2)
        assert 0.1 < max(exchange.queued_s for exchange in rig.exchanges) < 2
        writer.close()


async def test_chat_waiting_longer_than_the_queue_allows_is_refused() -> None:
    queue = QueueOptions(size=1, timeout_s=0.1)
    async with FakeWorker(Script([Stall()])) as worker, running(pool_of(worker, max_in_flight=1, queue=queue)) as rig:
        _, writer = await rig.connect(json.dumps(ASK).encode())
        await worker.until(lambda: worker.requests)

        answer = await rig.post(ASK)

        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "router_overloaded")
        writer.close()
        await rig.until(rig.is_idle)


async def test_chat_limits_of_key_and_pool_are_told_in_headers() -> None:
    async with FakeWorker() as worker, running(pool_of(worker, rate_limit_per_min=2)) as rig:
        rig.key = rig.add_key(requests_per_min=5)
        rig.use(rig.pools)
        allowed = [await rig.post(ASK) for _ in range(2)]

        refused = await rig.post(ASK)

        assert [answer.headers["x-ratelimit-remaining-requests"] for answer in allowed] == ["1", "0"]
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert refused.headers["x-ratelimit-limit-requests"] == "2"
        assert refused.headers["retry-after"] == "30"
        assert rig.limiter.taken["key:2"] == 2  # the refused call's permit went back
        assert len(worker.requests) == 2
