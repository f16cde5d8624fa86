"""Which addresses may be dialled: a name is resolved here, checked here, and only a checked address is connected to.

Workers live on loopback and in private networks, and operators alone name them, so those are allowed. Never allowed:
"this" network, link-local (cloud metadata), the metadata addresses outside of it, protocol assignments, benchmarking,
multicast, reserved; and every v6 form that carries a v4 address is unwrapped and judged by that, or refused. The table
is our own, because the standard library's `is_private` and `is_global` changed their meaning between patch releases.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from gateway.protocol.faults import Fault, FaultKind

Address = tuple[int, tuple[str, int]]  # family, and host and port as create_connection takes them

CACHE_S = 30.0  # short enough for a worker that moves, long enough that connecting costs no look-up
CACHE_LIMIT = 4096

_DENIED = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "192.0.0.0/24",  # holds Oracle's metadata address
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "100.100.100.200/32",  # Alibaba's metadata
        "168.63.129.16/32",  # Azure's wire server
        "::/128",
        "64:ff9b:1::/48",  # local NAT64: where the v4 address sits depends on the site
        "100::/64",
        "2001::/32",  # Teredo carries two v4 addresses and has no users left
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
        "fd00:ec2::254/128",  # Amazon's metadata
        "fd20:ce::254/128",  # Google's metadata
    )
)
# Prefixes that carry a v4 address, with the bits to its right.
_CARRIERS = tuple(
    (ip_network(text), shift)
    for text, shift in (
        ("::ffff:0:0/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("64:ff9b::/96", 0),
        ("::/96", 0),
        ("2002::/16", 80),
    )
)
_DENIED_NAMES = frozenset(
    ("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal")
)


def is_allowed(text: str) -> bool:
    """Whether the address, given as text, may be dialled."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        address = _unwrapped(address)
    return not any(address.version == net.version and address in net for net in _DENIED)


def _unwrapped(address: IPv6Address) -> IPv4Address | IPv6Address:
    if int(address) <= 1:  # :: and ::1 lie in ::/96 and carry nothing
        return address
    for net, shift in _CARRIERS:
        if address in net:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return address


class Egress:
    """Resolves names to the addresses that may be dialled, and remembers them for a short while."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cache: dict[tuple[str, int], tuple[float, list[Address]]] = {}

    async def resolve(self, host: str, port: int) -> list[Address]:
        """The addresses of `host` that may be dialled, at least one.

        Raises CONNECT_FAILED when there is none, and OSError (socket.gaierror) when the name does not resolve.
        """
        known = self._cache.get((host, port))
        if known is not None and self._clock() < known[0]:
            return known[1]
        if host.rstrip(".").lower() in _DENIED_NAMES:
            raise _refusal()
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [(int(family), (str(to[0]), port)) for family, _, _, _, to in found if is_allowed(str(to[0]))]
        if not addresses:
            raise _refusal()
        if len(self._cache) >= CACHE_LIMIT:
            self._cache.clear()
        self._cache[(host, port)] = (self._clock() + CACHE_S, addresses)
        return addresses


def _refusal() -> Fault:
    return Fault(FaultKind.CONNECT_FAILED, "no connection to the upstream: its address is not one that may be dialled")
