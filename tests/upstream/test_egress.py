"""Which addresses may be dialled."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.protocol.faults import Fault, FaultKind
from gateway.upstream import egress
from gateway.upstream.egress import Egress, is_allowed

ALLOWED = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "1.1.1.1",
    "169.253.255.255",
    "169.255.0.0",
    "192.0.1.0",
    "223.255.255.255",
    "100.100.100.199",
    "::1",
    "fc00::1",
    "fd00:ec2::253",
    "2606:4700::1111",
    "::ffff:10.0.0.1",
    "64:ff9b::1.1.1.1",
    "2002:0a00:0001::1",
]
DENIED = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.255.255",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "100.100.100.200",
    "168.63.129.16",
    "::",
    "::169.254.169.254",
    "::ffff:169.254.169.254",
    "::ffff:0.0.0.0",
    "::ffff:0:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2002:a9fe:a9fe::1",
    "fe80::1",
    "fe80::1%eth0",
    "fd00::1%eth0",
    "febf:ffff::1",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "not an address",
]


@pytest.mark.parametrize("address", ALLOWED)
def test_address_where_workers_live_is_allowed(address):
    assert is_allowed(address)


@pytest.mark.parametrize("address", DENIED)
def test_address_where_no_worker_lives_is_denied(address):
    assert not is_allowed(address)


async def test_resolve_gives_the_checked_addresses():
    assert await Egress().resolve("127.0.0.1", 80) == [(socket.AF_INET, ("127.0.0.1", 80))]
    assert await Egress().resolve("::1", 80) == [(socket.AF_INET6, ("::1", 80))]
    assert (socket.AF_INET, ("127.0.0.1", 80)) in await Egress().resolve("localhost", 80)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "2852039166",  # 169.254.169.254 as one number
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "0",
        "::ffff:169.254.169.254",
        "metadata.google.internal",
        "METADATA.google.internal.",
    ],
)
async def test_resolve_of_a_denied_host_in_any_spelling_is_a_connect_fault(host):
    with pytest.raises(Fault) as caught:
        await Egress().resolve(host, 80)
    assert caught.value.kind is FaultKind.CONNECT_FAILED
    assert "169" not in caught.value.message


async def test_resolve_of_an_unknown_name_is_an_os_error():
    with pytest.raises(OSError):
        await Egress().resolve("no-such-name.invalid", 80)


async def test_resolve_remembers_for_its_time_and_no_longer(clock):
    resolver = Egress(clock=clock)
    first = await resolver.resolve("127.0.0.1", 80)
    clock.advance(egress.CACHE_S - 1)
    assert await resolver.resolve("127.0.0.1", 80) is first
    clock.advance(1)
    assert await resolver.resolve("127.0.0.1", 80) is not first


async def test_resolve_remembers_a_bounded_number_of_hosts():
    resolver = Egress()
    await asyncio.gather(*(resolver.resolve("127.0.0.1", port) for port in range(1, egress.CACHE_LIMIT + 2)))
    assert len(resolver._cache) == 1
