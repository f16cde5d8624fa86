"""Whoever speaks the OpenAI HTTP API: vLLM, SGLang, OpenAI itself, other gateways."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gateway.protocol.faults import Fault, FaultKind
from gateway.routing.snapshot import WorkerSpec

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TARGET = re.compile(r"[!-~]+")  # no space, no control character: nothing that could end the line
_TOKEN = re.compile(r"[!-~]+(?: [!-~]+)*")


class OpenAIAdapter:
    """The base URL may be a host, have a path before it, or end in /v1 as vendors print it: /v1 is said once."""

    def head(self, worker: WorkerSpec, path: str) -> bytes:
        host, base = _address(worker.url)
        target = base + path if base.endswith("/v1") else f"{base}/v1{path}"
        if not _TARGET.fullmatch(target):
            raise _misconfigured("URL")
        lines = [f"POST {target} HTTP/1.1", f"host: {host}", "accept-encoding: identity"]
        if worker.credential:
            if not _TOKEN.fullmatch(worker.credential):
                raise _misconfigured("credential")
            lines.append(f"authorization: Bearer {worker.credential}")
        return "".join([f"{line}\r\n" for line in lines]).encode()


def _address(url: str) -> tuple[str, str]:
    """The value of Host, and the path that stands before everything asked of this worker."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _misconfigured("URL") from None  # its text holds the URL
    is_plain = parts.scheme in _DEFAULT_PORTS and not (parts.query or parts.fragment or "@" in parts.netloc)
    if not is_plain or not _TARGET.fullmatch(host):
        raise _misconfigured("URL")
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    return host, parts.path.rstrip("/")


def _misconfigured(what: str) -> Fault:
    return Fault(FaultKind.UPSTREAM_AUTH, f"The worker's {what} cannot be used; an operator must mend it.")
