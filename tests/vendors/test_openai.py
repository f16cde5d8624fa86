from __future__ import annotations

import pytest

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.snapshot import WorkerId, WorkerSpec
from gateway.vendors.registry import ADAPTERS

PATH = "/chat/completions"


def head(url: str, credential: str | None = None) -> bytes:
    return ADAPTERS["openai"].head(WorkerSpec(WorkerId("w1"), "one", url, credential=credential), PATH)


@pytest.mark.parametrize(
    ("url", "target", "host"),
    [
        ("http://127.0.0.1:9101", b"/v1/chat/completions", b"127.0.0.1:9101"),
        ("http://127.0.0.1:9101/", b"/v1/chat/completions", b"127.0.0.1:9101"),
        ("https://api.openai.com/v1", b"/v1/chat/completions", b"api.openai.com"),
        ("https://api.openai.com:443/v1/", b"/v1/chat/completions", b"api.openai.com"),
        ("https://API.example.com:80/openai/v1", b"/openai/v1/chat/completions", b"api.example.com:80"),
        ("http://gpu:80/llm", b"/llm/v1/chat/completions", b"gpu"),
        ("http://gpu/v1x", b"/v1x/v1/chat/completions", b"gpu"),
        ("http://[::1]:8000/v1", b"/v1/chat/completions", b"[::1]:8000"),
        ("http://[fe80::2]", b"/v1/chat/completions", b"[fe80::2]"),
    ],
)
def test_head_names_target_and_host(url: str, target: bytes, host: bytes) -> None:
    assert head(url) == b"POST %b HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\n" % (target, host)


def test_head_carries_the_workers_own_credential() -> None:
    assert head("http://gpu", "sk-vendor") == (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: gpu\r\naccept-encoding: identity\r\n"
        b"authorization: Bearer sk-vendor\r\n"
    )


@pytest.mark.parametrize("credential", ["sk\r\nx: y", "sk\n", "\rsk", "sk\0", "sk\t", "schlüssel", " "])
def test_credential_that_cannot_be_sent_is_refused_unseen(credential: str) -> None:
    with pytest.raises(Fault) as caught:
        head("http://gpu", credential)
    assert caught.value.kind is FaultKind.UPSTREAM_AUTH
    assert caught.value.message == "The worker's credential cannot be used; an operator must mend it."


@pytest.mark.parametrize(
    "url",
    [
        "ftp://gpu",
        "gpu:8000",
        "http://",
        "http://gpu:99999",
        "http://gpu:port",
        "http://user:secret@gpu",
        "http://gpu/?key=secret",
        "http://gpu/#part",
        "http://gpu/a b",
        "http://gpü",
        "http://[::1",
    ],
)
def test_url_that_cannot_be_asked_is_refused_unseen(url: str) -> None:
    with pytest.raises(Fault) as caught:
        head(url)
    assert caught.value.kind is FaultKind.UPSTREAM_AUTH
    assert caught.value.message == "The worker's URL cannot be used; an operator must mend it."


def test_line_ends_in_a_url_do_not_reach_the_head() -> None:
    assert head("http://gpu/a\r\nx: y/v1".replace(" ", "")) == (
        b"POST /ax:y/v1/chat/completions HTTP/1.1\r\nhost: gpu\r\naccept-encoding: identity\r\n"
    )
