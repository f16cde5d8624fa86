"""What the data plane refuses before a worker is asked, in the endpoint's own error form."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from gateway.pipeline.exchange import Outcome
from tests.fakes.worker import FakeWorker
from tests.pipeline.rig import VIA, Rig, pool_of, running

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def error(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    return answer.status_code, body["error"]["code"]


async def get(rig: Rig, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(rig.url + path, headers={"authorization": f"Bearer {rig.key}", **headers})


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": ""},
        {"authorization": "Bearer sk-igw-00000000-wrong"},
        {"authorization": "Basic abc"},
        {"authorization": "", "x-api-key": "nonsense"},
    ],
)
async def test_key_missing_or_wrong_gives_one_text(headers: dict[str, str]) -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        answer = await rig.post(ASK, **headers)

        assert error(answer) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["message"].startswith("A valid API key is needed")
        assert not worker.requests


async def test_key_of_every_header_is_taken() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig, httpx.AsyncClient() as client:
        for name, value in (("authorization", f"bearer {rig.key}"), ("x-api-key", rig.key), ("api-key", rig.key)):
            answer = await client.post(f"{rig.url}/v1/chat/completions", json=ASK, headers={name: value})
            assert answer.status_code == 200


async def test_key_expired_or_taken_away_is_refused_although_it_was_known() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        rig.key = rig.add_key(expires_s=0.0)
        rig.use(rig.pools)
        assert error(await rig.post(ASK)) == (401, "invalid_api_key")
        rig.key = rig.add_key()
        rig.use(rig.pools)
        assert (await rig.post(ASK)).status_code == 200

        rig.keys.clear()
        rig.use(rig.pools)

        assert error(await rig.post(ASK)) == (401, "invalid_api_key")


async def test_model_unknown_and_model_not_allowed_are_told_apart() -> None:
    async with FakeWorker() as worker, running(pool_of(worker), pool_of(worker, model="other")) as rig:
        assert error(await rig.post({**ASK, "model": "nope"})) == (404, "model_not_found")
        rig.key = rig.add_key(models=frozenset({"other"}))
        rig.use(rig.pools)
        assert error(await rig.post(ASK)) == (403, "model_not_allowed")
        assert (await rig.ended()).outcome is Outcome.REFUSED
        assert not worker.requests


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"model":"m","model":"m","messages":[{}]}', "invalid_json"),
        (b'{"model":3,"messages":[{}]}', "invalid_value"),
        (b'{"messages":[{}]}', "invalid_value"),
        (b'{"model":"m"}', "invalid_value"),
        (b'{"model":"m","messages":[],"stream":"yes"}', "invalid_value"),
        (b'{"model":"m","messages":[{}],"n":NaN}', "invalid_json"),
        (b'{"model":"m","messages":[' + b"[" * 70 + b"]" * 70 + b"]}", "invalid_json"),
        (b'\xef\xbb\xbf{"model":"m","messages":[{}]}', "invalid_json"),
    ],
)
async def test_body_bad_is_refused_and_nothing_is_asked(body: bytes, code: str) -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        status, found = error(await rig.post(body))

        assert status == 400
        assert found in {code, "bad_request", "invalid_value", "invalid_json"}
        assert not worker.requests


async def test_body_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    async with FakeWorker() as worker, running(pool_of(worker), body_limit=1000) as rig:
        body = json.dumps({**ASK, "pad": ""}).encode()
        fitting = body.replace(b'"pad": ""', b'"pad": "%b"' % (b"x" * (1000 - len(body))))
        assert (await rig.post(fitting)).status_code == 200

        assert error(await rig.post(fitting.replace(b"xx", b"xxx", 1))) == (413, "request_too_large")

        async def pieces() -> Any:
            for _ in range(40):
                yield b"x" * 100

        async with httpx.AsyncClient() as client:
            headers = {"authorization": f"Bearer {rig.key}", "content-type": "application/json"}
            answer = await client.post(f"{rig.url}/v1/chat/completions", content=pieces(), headers=headers)
        assert error(answer) == (413, "request_too_large")
        assert len(worker.requests) == 1


async def test_body_is_not_read_before_the_key_is_known() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        host, port = rig.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
            b"content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
        )

        received = await reader.readuntil(b"}}")

        assert received.startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_body_that_comes_too_slowly_is_refused() -> None:
    async with FakeWorker() as worker, running(pool_of(worker), body_s=0.3) as rig:
        host, port = rig.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {rig.key}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{".encode())

        received = await reader.readuntil(b"}}")

        assert received.startswith(b"HTTP/1.1 408 ")
        assert rig.is_idle()
        writer.close()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"content_type": "text/plain"}, (415, "unsupported_media_type")),
        ({"content_encoding": "gzip"}, (415, "unsupported_media_type")),
        ({"via": VIA.decode()}, (508, "loop_detected")),
        ({"via": f"1.0 other, {VIA.decode()}"}, (508, "loop_detected")),
    ],
)
async def test_headers_that_cannot_be_served_are_refused(headers: dict[str, str], expected: tuple[int, str]) -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        assert error(await rig.post(ASK, **headers)) == expected
        assert not worker.requests


@pytest.mark.parametrize("given", ["a b", "ü", "x" * 129, ""])
async def test_request_id_that_is_not_clean_is_replaced(given: str) -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        async with httpx.AsyncClient() as client:
            headers = [("authorization", f"Bearer {rig.key}"), ("x-request-id", given.encode())]
            answer = await client.post(f"{rig.url}/v1/chat/completions", json=ASK, headers=headers)

        assert answer.status_code == 200
        made = answer.headers["x-request-id"]
        assert made != given
        assert worker.requests[0].header("x-request-id") == made


async def test_process_that_is_full_refuses_before_the_body() -> None:
    async with FakeWorker() as worker, running(pool_of(worker), max_calls=0) as rig:
        assert error(await rig.post(ASK)) == (429, "router_overloaded")


async def test_process_without_configuration_says_so() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        rig.plane.snapshot = None

        assert error(await rig.post(ASK)) == (503, "not_configured")


async def test_models_lists_what_the_key_may_use_with_aliases() -> None:
    async with FakeWorker() as worker:
        pools = [pool_of(worker, model="b", aliases=("a",), created_s=7), pool_of(worker, model="c")]
        async with running(*pools) as rig:
            rig.key = rig.add_key(models=frozenset({"b"}))
            rig.use(rig.pools)

            models = (await get(rig, "/v1/models")).json()

            entry = {"object": "model", "created": 7, "owned_by": "igw"}
            assert models == {"object": "list", "data": [{"id": "a", **entry}, {"id": "b", **entry}]}
            assert (await get(rig, "/v1/models/a")).json() == {"id": "a", **entry}
            assert error(await get(rig, "/v1/models/c")) == (403, "model_not_allowed")
            assert error(await get(rig, "/v1/models/d")) == (404, "model_not_found")
            assert error(await get(rig, "/v1/models", authorization="")) == (401, "invalid_api_key")


async def test_paths_and_methods_that_are_not_served() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        assert error(await get(rig, "/v1/nothing")) == (404, "not_found")
        assert error(await get(rig, "/v1/chat/completions")) == (405, "method_not_allowed")
        assert error(await rig.post(ASK, path="/v1/models")) == (405, "method_not_allowed")
        assert (await get(rig, "/admin/")).status_code == 404


async def test_operations_say_how_the_process_stands() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        assert (await get(rig, "/live")).text == "live\n"
        assert (await get(rig, "/ready")).json()["status"] == "ready"
        assert (await get(rig, "/health")).json() == {"status": "ok"}
        assert "127.0.0.1" not in (await get(rig, "/diagnostics")).text

        rig.use([pool_of(model="empty")])

        answer = await get(rig, "/ready")
        assert (answer.status_code, answer.json()["pools"]) == (503, {"empty": "no workers"})
        assert (await get(rig, "/health")).status_code == 503


async def test_request_id_is_on_every_answer() -> None:
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        for path in ("/live", "/ready", "/v1/models", "/nothing"):
            assert (await get(rig, path, **{"x-request-id": "mine"})).headers["x-request-id"] == "mine"
            assert (await get(rig, path)).headers["x-request-id"]
        reader, writer = await asyncio.open_connection(*rig.url.removeprefix("http://").split(":"))
        writer.write(b"TRACE / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"\r\nx-request-id: " in await reader.read(-1)
        writer.close()
