"""The demo worker as its clients see it: over TCP, with the openai SDK where shapes matter."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import subprocess
import sys
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import uvicorn

from gateway.launch.demo_answers import chat_chunks
from gateway.launch.demo_worker import DemoFault, DemoWorker, Manners, TransportProtocol
from gateway.launch.process import free_port
from gateway.launch.ready import until_status

MANNERS = Manners(name="w1", model="demo", first_byte_s=0, token_s=0)
HELLO: list[Any] = [{"role": "user", "content": "hello there"}]
REPLY = 'Hello from w1. You said: "hello there" There is no model behind this answer, but the way here is real.'


async def serve(manners: Manners, chance: float = 0.5) -> AsyncIterator[int]:
    config = uvicorn.Config(
        DemoWorker(manners, lambda: chance), http=TransportProtocol, ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    port = listener.getsockname()[1]
    assert await until_status("127.0.0.1", port, "/health", 200, 5)
    yield port
    server.should_exit = True
    await task


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async for port in serve(MANNERS):
        yield port


@pytest.fixture
async def client(port: int) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
        yield client


async def exchange(port: int, *, fault: str = "", stream: bool = False) -> bytes:
    """All bytes of the answer to one chat call; raises what the socket raises."""
    body = json.dumps({"model": "demo", "messages": HELLO, "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write((head + (f"x-demo-fault: {fault}\r\n" if fault else "") + "\r\n").encode() + body)
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()


async def test_models_lists_the_one_model(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["demo"]


async def test_chat_answers_with_usage(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=HELLO)
    assert (answer.model, answer.choices[0].message.content, answer.choices[0].finish_reason) == ("m", REPLY, "stop")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, len(REPLY.split()))


async def test_chat_with_a_token_limit_stops_there(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=HELLO, max_tokens=3)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Hello from w1.", "length")


async def test_chat_stream_gives_the_same_text(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == REPLY
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


async def test_chat_stream_asked_for_usage_ends_with_it(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    *before, last = [chunk async for chunk in stream]
    assert {chunk.usage for chunk in before} == {None}
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == len(REPLY.split())


def test_chat_chunks_end_with_done() -> None:
    assert list(chat_chunks({"messages": HELLO}, "w1"))[-1] == b"[DONE]"


@pytest.mark.parametrize("asked", [{}, {"messages": []}, {"messages": "hello"}, {"messages": ["hello"]}])
async def test_chat_without_messages_is_the_clients_mistake(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError, match="a list of one message or more is expected"):
        await client.post("/chat/completions", body=asked, cast_to=object)


async def test_embeddings_are_the_same_for_the_same_text(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="m", input=["one", "two", "one"])
    first, second, third = (item.embedding for item in answer.data)
    assert (len(first), first == third, first == second) == (16, True, False)
    assert sum(value * value for value in first) == pytest.approx(1)


async def test_embeddings_packed_and_plain_agree(client: openai.AsyncOpenAI) -> None:
    packed = await client.embeddings.create(model="m", input="one", dimensions=3)  # the SDK asks for base64
    plain = await client.embeddings.create(model="m", input="one", dimensions=3, encoding_format="float")
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, rel=1e-6)


async def test_speech_is_a_wav_as_long_as_the_text(client: openai.AsyncOpenAI) -> None:
    answer = await client.audio.speech.create(model="m", voice="alloy", input="x" * 10)
    with wave.open(io.BytesIO(answer.content)) as wav:
        assert (wav.getframerate(), wav.getnchannels(), wav.getnframes()) == (24_000, 1, int(0.6 * 24_000))


async def test_unknown_path_is_404(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no POST /v1/nothing here"):
        await client.post("/nothing", body={}, cast_to=object)


async def test_fault_error500_is_a_server_error(port: int) -> None:
    assert (await exchange(port, fault="error500")).startswith(b"HTTP/1.1 500 ")


async def test_fault_error429_says_when_to_come_back(port: int) -> None:
    head = (await exchange(port, fault="error429")).split(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0].startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 1" in head


async def test_fault_reset_resets_before_any_byte(port: int) -> None:
    with pytest.raises(ConnectionResetError):
        await exchange(port, fault="reset")


async def test_fault_close_mid_stream_ends_without_the_last_chunk(port: int) -> None:
    answer = await exchange(port, fault="close_mid_stream", stream=True)
    assert answer.count(b"data: ") > 2
    assert b"[DONE]" not in answer
    assert not answer.endswith(b"0\r\n\r\n")


async def test_fault_close_mid_stream_cuts_a_whole_answer_in_half(port: int) -> None:
    head, _, body = (await exchange(port, fault="close_mid_stream")).partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    assert len(body) == length // 2


async def test_fault_hang_sends_nothing_and_frees_the_worker_when_the_client_goes(port: int) -> None:
    task = asyncio.create_task(exchange(port, fault="hang"))
    assert await asyncio.wait({task}, timeout=0.3) == (set(), {task})
    task.cancel()
    await asyncio.wait({task})
    assert (await exchange(port)).startswith(b"HTTP/1.1 200 ")


async def test_fault_that_is_unknown_is_none(port: int) -> None:
    assert (await exchange(port, fault="sulk")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("chance", "status"), [(0.29, b"500"), (0.31, b"200")])
async def test_fault_rate_is_the_share_of_calls_that_fail(chance: float, status: bytes) -> None:
    manners = Manners(first_byte_s=0, token_s=0, fault=DemoFault.ERROR_500, fault_rate=0.3)
    async for port in serve(manners, chance):
        assert (await exchange(port)).split()[1] == status


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    command = [sys.executable, "manage.py", "demo_worker", "--port", str(port), "--fault", "hang"]
    child = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    yield child, port
    child.kill()
    child.wait(10)


async def test_command_serves_and_ends_by_sigterm_with_a_call_hanging(
    process: tuple[subprocess.Popen[bytes], int],
) -> None:
    child, port = process
    assert await until_status("127.0.0.1", port, "/health", 200, 10)
    hanging = asyncio.create_task(exchange(port))
    assert await asyncio.wait({hanging}, timeout=0.2) == (set(), {hanging})
    child.terminate()
    await asyncio.to_thread(child.wait, 5)
    await asyncio.wait({hanging})
    assert isinstance(hanging.exception(), ConnectionResetError) or hanging.result() == b""
