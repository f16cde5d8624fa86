"""Connections and pools: reuse, replacement, limits, large requests, TLS."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.protocol.faults import Fault, FaultKind
from gateway.upstream.egress import Egress
from gateway.upstream.wire import IDLE_LIMIT, Origin, Wire
from tests.fakes.scripts import Close, Pause, Reset, Script, Send, Stall, Wait, chat, early, raw, status
from tests.fakes.worker import FakeWorker
from tests.upstream.client import Client


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://worker:8000", Origin("worker", 8000, False)),
        ("http://worker/v1", Origin("worker", 80, False)),
        ("https://api.example.com/v1", Origin("api.example.com", 443, True)),
        ("http://[::1]:9/", Origin("::1", 9, False)),
    ],
)
def test_origin_of_a_url_is_host_port_and_tls(url, origin):
    assert Origin.of(url) == origin


@pytest.mark.parametrize("url", ["ftp://x", "worker:8000", "http://", "http://user:secret@host", "http://x:99999"])
def test_origin_of_another_url_is_refused(url):
    with pytest.raises(ValueError):
        Origin.of(url)


async def test_exchange_gathered_gives_status_headers_and_body(client, worker):
    worker.next(status(200, headers={"X-One": "1"}, body=b"abc"))
    answer = await client.open(b'{"a":1}', gather_bytes=100)
    expected = [(b"content-type", b"application/json"), (b"content-length", b"3"), (b"x-one", b"1")]
    assert (answer.status, answer.headers, answer.body, answer.is_complete) == (200, expected, b"abc", True)
    assert worker.requests[0].body == b'{"a":1}'


async def test_exchanges_in_a_row_share_one_connection(client, worker):
    for _ in range(3):
        (await client.open(gather_bytes=1000)).close()
    assert (worker.connections, client.wire.open_connections, client.wire.idle_connections) == (1, 1, 1)


async def test_exchanges_at_once_get_a_connection_each_and_the_last_used_comes_first(client, worker):
    await asyncio.gather(client.open(gather_bytes=1000), client.open(gather_bytes=1000))
    assert (worker.connections, client.wire.idle_connections) == (2, 2)
    last = worker.requests[-1].connection
    await client.open(gather_bytes=1000)
    assert worker.requests[-1].connection == last


async def test_idle_connection_past_its_time_is_closed_by_the_sweeper(client, worker, clock):
    await client.open(gather_bytes=1000)
    clock.advance(3.0)
    await worker.until(lambda: worker.open_connections == 0, within_s=1)
    assert client.wire.open_connections == client.wire.idle_connections == 0


async def test_idle_connection_past_its_time_is_not_used(client, worker, clock):
    await client.open(gather_bytes=1000)
    clock.advance(3.0)
    await client.open(gather_bytes=1000)
    assert worker.connections == 2


async def test_idle_connection_closed_by_the_worker_leaves_the_pool(client, worker):
    worker.next(Script([*chat().steps, Close()]))
    await client.open(gather_bytes=1000)
    await worker.until(lambda: client.wire.open_connections == 0)
    assert client.wire.idle_connections == 0


async def test_idle_connection_with_bytes_nobody_asked_for_is_aborted(client, worker):
    asked = asyncio.Event()
    worker.next(Script([*chat().steps, Wait(asked), Send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), Stall()]))
    await client.open(gather_bytes=1000)
    assert client.wire.idle_connections == 1
    asked.set()
    await worker.until(lambda: client.wire.open_connections == 0)
    assert (await client.open(gather_bytes=1000)).status == 200


@pytest.mark.parametrize("end", [Close(), Reset()])
async def test_reused_connection_that_dies_without_a_byte_is_replaced(client, worker, end):
    await client.open(gather_bytes=1000)
    worker.next(Script([end]), chat("again"))
    answer = await client.open(b"x" * 100_000, gather_bytes=1000)
    assert b"again" in answer.body
    assert [request.connection for request in worker.requests] == [0, 0, 1]
    assert worker.requests[2].body == b"x" * 100_000


async def test_reused_connection_is_replaced_only_once(client, worker):
    await client.open(gather_bytes=1000)
    worker.next(Script([Close()]), Script([Close()]))
    with pytest.raises(Fault) as caught:
        await client.open()
    assert (caught.value.kind, len(worker.requests)) == (FaultKind.UPSTREAM_RESET, 3)


async def test_reused_connection_that_dies_after_a_byte_is_not_replaced(client, worker):
    await client.open(gather_bytes=1000)
    worker.next(raw(b"H", Close()))
    with pytest.raises(Fault) as caught:
        await client.open()
    assert (caught.value.kind, len(worker.requests)) == (FaultKind.UPSTREAM_RESET, 2)


async def test_reused_connection_that_stays_silent_is_not_replaced(client, worker, clock):
    await client.open(gather_bytes=1000)
    worker.next(Script([Stall()]))
    call = asyncio.ensure_future(client.open(first_byte_s=5))
    await worker.until(lambda: len(worker.requests) == 2)
    clock.advance(5)
    with pytest.raises(Fault) as caught:
        await call
    assert (caught.value.kind, len(worker.requests)) == (FaultKind.FIRST_BYTE_TIMEOUT, 2)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n",
    ],
)
async def test_answer_without_keep_alive_closes_the_connection(client, worker, head):
    worker.next(raw(head + b"hi"))
    assert (await client.open(gather_bytes=100)).body == b"hi"
    await worker.until(lambda: worker.open_connections == 0)
    assert client.wire.open_connections == 0


@pytest.mark.parametrize("extra", [0, 1])
async def test_pool_keeps_as_many_idle_connections_as_its_limit(client, worker, extra):
    answers = await asyncio.gather(*(client.open() for _ in range(IDLE_LIMIT + extra)))
    for answer in answers:
        await answer.read(10_000)
    assert client.wire.idle_connections == IDLE_LIMIT
    await worker.until(lambda: client.wire.open_connections == IDLE_LIMIT)


async def test_forget_closes_the_idle_connections_of_other_origins_only(client, worker, wire):
    gate = asyncio.Event()
    async with FakeWorker() as other:
        await Client(wire, other).open(gather_bytes=1000)
        worker.next(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", Wait(gate), Send(b"hi")))
        running = await client.open()
        await client.open(gather_bytes=1000)
        wire.forget([Origin.of(other.url)])
        await worker.until(lambda: worker.open_connections == 1)
        assert (wire.open_connections, wire.idle_connections, other.open_connections) == (2, 1, 1)
        gate.set()
        assert await running.read(1000) == b"hi"


async def test_close_ends_running_exchanges_with_a_fault_and_refuses_new_ones(client, worker, wire):
    worker.next(Script([Stall()]))
    call = asyncio.ensure_future(client.open())
    await worker.until(lambda: worker.requests)
    await wire.close()
    with pytest.raises(Fault) as caught:
        await call
    assert caught.value.kind is FaultKind.UPSTREAM_RESET
    with pytest.raises(Fault) as caught:
        await client.open()
    assert caught.value.kind is FaultKind.DRAINING


async def test_connection_refused_is_a_connect_fault_without_the_address(wire):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # bound and not listening: refused
        port = listener.getsockname()[1]
        with pytest.raises(Fault) as caught:
            await wire.open(Origin("127.0.0.1", port, False), b"", connect_s=5, first_byte_s=5, idle_s=5)
    assert caught.value.kind is FaultKind.CONNECT_FAILED
    assert caught.value.message == "no connection to the upstream: Connection refused"


async def test_connect_that_takes_too_long_is_a_connect_fault(wire):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        with socket.create_connection(listener.getsockname()):  # fills the backlog: the next SYN is not answered
            origin = Origin(*listener.getsockname(), False)
            with pytest.raises(Fault) as caught:
                await wire.open(origin, b"", connect_s=0.05, first_byte_s=5, idle_s=5)
    assert caught.value.kind is FaultKind.CONNECT_FAILED
    assert caught.value.message == "no connection to the upstream: timed out"


async def test_connect_tries_the_addresses_of_a_name_in_turn(worker, clock):
    class TwoAddresses(Egress):
        async def resolve(self, host, port):
            return [(socket.AF_INET6, ("::1", port)), (socket.AF_INET, ("127.0.0.1", port))]

    wire = Wire(egress=TwoAddresses(), clock=clock)
    origin = Origin("two.example", worker.port, False)
    request = b"GET / HTTP/1.1\r\n\r\n"
    answer = await wire.open(origin, request, connect_s=5, first_byte_s=5, idle_s=5, gather_bytes=1000)
    assert answer.status == 200
    await wire.close()


async def test_connect_to_an_address_that_may_not_be_dialled_is_a_connect_fault(wire):
    with pytest.raises(Fault) as caught:
        await wire.open(Origin("169.254.169.254", 80, False), b"", connect_s=5, first_byte_s=5, idle_s=5)
    assert caught.value.kind is FaultKind.CONNECT_FAILED


@pytest.mark.parametrize("size", [65_000, 70_000, 5_000_000])
async def test_request_of_any_size_arrives_whole_at_a_slow_reader(client, worker, size):
    worker.next(Script(chat().steps, read_bytes_per_s=200e6))
    body = bytes(range(256)) * (size // 256)
    answer = await client.open(body, gather_bytes=1000)
    assert (answer.status, worker.requests[0].body) == (200, body)
    assert client.wire.idle_connections == 1


async def test_early_answer_to_a_large_request_is_delivered_and_the_connection_closed(client, worker):
    worker.next(Script([*status(413, body=b"too large").steps, Stall()], reads_body=False))
    answer = await client.open(b"x" * 20_000_000, gather_bytes=1000)
    assert (answer.status, answer.body) == (413, b"too large")
    await worker.until(lambda: client.wire.open_connections == 0)


async def test_early_answer_and_close_of_the_worker_is_delivered(client, worker):
    worker.next(early(status(413, body=b"too large")))
    answer = await client.open(b"x" * 200_000, gather_bytes=1000)
    assert (answer.status, answer.body) == (413, b"too large")


async def test_upstream_that_does_not_take_the_request_runs_into_the_first_byte_deadline(client, worker, clock):
    worker.next(Script([Stall()], reads_body=False))
    call = asyncio.ensure_future(client.open(b"x" * 20_000_000, first_byte_s=5))
    await worker.until(lambda: worker.requests)
    await asyncio.sleep(0.05)  # until the socket's buffers are full
    clock.advance(5)
    with pytest.raises(Fault) as caught:
        await call
    assert caught.value.kind is FaultKind.FIRST_BYTE_TIMEOUT


async def pieces_of(*pieces: bytes):
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


async def open_streamed(wire, worker, pieces):
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    return await wire.open(
        Origin.of(worker.url), head, connect_s=5, first_byte_s=5, idle_s=5, gather_bytes=1000, more=pieces
    )


async def test_streamed_request_arrives_whole_on_a_fresh_connection_that_is_kept(client, worker, wire):
    await client.open(gather_bytes=1000)
    answer = await open_streamed(wire, worker, pieces_of(b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\n\r\n"))
    assert (answer.status, worker.requests[-1].body, worker.requests[-1].connection) == (200, b"abcde", 1)
    assert wire.idle_connections == 2


async def test_streamed_request_ends_with_an_early_answer(worker, wire):
    async def endless():
        while True:
            await asyncio.sleep(0)
            yield b"400\r\n" + b"x" * 1024 + b"\r\n"

    worker.next(Script([*status(413, body=b"no").steps, Stall()], reads_body=False))
    answer = await open_streamed(wire, worker, endless())
    assert (answer.status, answer.body) == (413, b"no")
    await worker.until(lambda: wire.open_connections == 0)


async def test_streamed_request_whose_source_fails_aborts_the_connection(worker, wire):
    async def failing():
        yield b"1\r\na\r\n"
        raise LookupError("source")

    with pytest.raises(LookupError):
        await open_streamed(wire, worker, failing())
    await worker.until(lambda: worker.connections == 1 and worker.open_connections == 0)


async def test_streamed_request_waits_for_its_source_without_a_deadline(worker, wire, clock):
    async def slow():
        yield b"1\r\na\r\n"
        clock.advance(60)
        await asyncio.sleep(0.3)  # a sweep
        yield b"0\r\n\r\n"

    assert (await open_streamed(wire, worker, slow())).status == 200


async def test_interim_answers_are_skipped(client, worker):
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    worker.next(Script([Send(interim), Pause(), *status(200, body=b"ok").steps]))
    answer = await client.open(gather_bytes=100)
    assert (answer.status, answer.body, len(answer.headers)) == (200, b"ok", 2)


async def test_redirect_is_returned_as_it_is(client, worker):
    worker.next(status(302, headers={"Location": "http://elsewhere/"}))
    assert (await client.open(gather_bytes=1000)).status == 302
    assert len(worker.requests) == 1


@pytest.mark.parametrize("code", [204, 304])
async def test_status_without_a_body_is_complete_and_keeps_the_connection(client, worker, code):
    worker.next(raw(b"HTTP/1.1 %d No\r\ncontent-length: 5\r\n\r\n" % code))
    answer = await client.open(gather_bytes=100)
    assert (answer.status, answer.body, answer.is_complete) == (code, b"", True)
    assert client.wire.idle_connections == 1


async def test_head_answer_has_no_body_and_keeps_the_connection(client, worker):
    worker.next(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"))
    answer = await client.open(method="HEAD")
    assert (answer.status, answer.is_complete, await answer.read(10)) == (200, True, b"")
    assert client.wire.idle_connections == 1


async def test_head_answer_with_a_body_is_a_protocol_fault(client, worker):
    worker.next(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"))
    with pytest.raises(Fault) as caught:
        await client.open(method="HEAD")
    assert caught.value.kind is FaultKind.UPSTREAM_PROTOCOL


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1, as (server context, client context)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "worker")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1).add_extension(address, critical=False)
    builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
    path = tmp_path_factory.mktemp("tls") / "worker.pem"
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(key_pem + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=path)


async def test_tls_exchanges_share_a_verified_connection(certificate, clock):
    server, trusting = certificate
    wire = Wire(egress=Egress(), clock=clock, tls=trusting)
    async with FakeWorker(tls=server) as worker:
        for size in (10, 2_000_000):
            worker.next(status(200, body=b"x" * size))
            request = b"GET / HTTP/1.1\r\n\r\n"
            answer = await wire.open(Origin.of(worker.url), request, connect_s=5, first_byte_s=5, idle_s=5)
            assert await answer.read(size) == b"x" * size
        assert worker.connections == 1
        await wire.close()


async def test_tls_certificate_that_nobody_vouches_for_is_a_connect_fault(certificate, wire):
    async with FakeWorker(tls=certificate[0]) as worker:
        with pytest.raises(Fault) as caught:
            await wire.open(Origin.of(worker.url), b"", connect_s=5, first_byte_s=5, idle_s=5)
    assert caught.value.kind is FaultKind.CONNECT_FAILED
    assert caught.value.message == "no connection to the upstream: the TLS handshake failed"
