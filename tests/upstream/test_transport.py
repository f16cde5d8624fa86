"""httpx over the wire: what only that face has."""

from __future__ import annotations

import httpx
import pytest

from gateway.upstream.transport import WireTransport
from tests.fakes.scripts import Script, Send, Stall, chat_stream, raw, status


@pytest.fixture
def http(wire) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=WireTransport(wire))


async def test_request_arrives_as_httpx_built_it(http, worker):
    answer = await http.get(worker.url + "/v1/models?a=%20b", headers={"X-One": "1"})
    (request,) = worker.requests
    assert (answer.status_code, answer.json()["object"]) == (200, "chat.completion")
    assert (request.method, request.path, request.header("x-one")) == ("GET", "/v1/models?a=%20b", "1")
    assert request.header("host") == f"127.0.0.1:{worker.port}"


async def test_streamed_request_body_is_chunked(http, worker, wire):
    async def pieces():
        for piece in (b"ab", b"", b"c" * 200_000):
            yield piece

    await http.post(worker.url, content=pieces())
    assert worker.requests[0].header("transfer-encoding") == "chunked"
    assert worker.requests[0].body == b"ab" + b"c" * 200_000
    assert wire.idle_connections == 1


async def test_multipart_request_keeps_its_length(http, worker):
    await http.post(worker.url, files={"file": ("a.wav", b"RIFF" * 50_000)})
    (request,) = worker.requests
    assert int(request.header("content-length")) == len(request.body)
    assert b"RIFF" * 50_000 in request.body


async def test_streamed_answer_comes_as_it_is_sent(http, worker, wire):
    worker.next(chat_stream(["a", "b"]))
    async with http.stream("POST", worker.url) as answer:
        lines = [line async for line in answer.aiter_lines() if line]
    assert (len(lines), lines[-1]) == (4, "data: [DONE]")
    assert wire.idle_connections == 1


async def test_answer_that_is_not_read_aborts_its_connection(http, worker, wire):
    worker.next(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Stall()))
    async with http.stream("GET", worker.url):
        pass
    await worker.until(lambda: worker.closed_by_peer)
    assert wire.open_connections == 0


async def test_redirect_is_not_followed(http, worker):
    worker.next(status(302, headers={"Location": "http://169.254.169.254/"}))
    assert (await http.get(worker.url)).status_code == 302


async def test_read_timeout_of_httpx_is_the_deadline(http, worker):
    worker.next(Script([Stall()]), Script([Send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"), Stall()]))
    for _ in range(2):
        with pytest.raises(httpx.ReadTimeout):
            await http.get(worker.url, timeout=0.05)


async def test_no_timeout_of_httpx_is_taken(http, worker):
    assert (await http.get(worker.url, timeout=None)).status_code == 200


async def test_address_that_may_not_be_dialled_is_a_connect_error(http):
    with pytest.raises(httpx.ConnectError):
        await http.get("http://169.254.169.254/latest/meta-data")


@pytest.mark.parametrize("headers", [{"x": "a\r\ny: b"}, {"x": "a\nb"}, {"x": b"a\x00b"}, {"x": b"\xff"}])
async def test_header_that_could_inject_another_is_refused(http, worker, headers):
    with pytest.raises(httpx.LocalProtocolError):
        await http.get(worker.url, headers=headers)
    assert worker.connections == 0
