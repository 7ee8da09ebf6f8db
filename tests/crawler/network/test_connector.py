"""Which addresses are public."""

from __future__ import annotations

import pytest

from anabranch.crawler.network.connector import is_public


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "223.255.255.255",
        "2001:200::1",
        "2606:4700:4700::1111",
        "2a00:1450::8",
        "3ffe::1",
        "64:ff9b::8.8.8.8",
        "2a00:1450::5efe:8.8.8.8",
        "2a00:1450::6efe:127.0.0.1",
    ],
)
def test_public_unicast_addresses_are_public(address: str) -> None:
    """The neighbours of each refused block are not refused with it; NAT64 and ISATAP are as public as what they hold."""
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2001:0:4136:e378:8000:63bf:f7f7:f7f7",
        "2002:7f00:1::",
        "2002:808:808::1",
        "2a00:1450::5efe:127.0.0.1",
        "2a00:1450::200:5efe:10.0.0.1",
        "2a00:1450::1%eth0",
        "::ffff:0:127.0.0.1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_all_other_addresses_are_not(address: str) -> None:
    """Loopback, private, link-local, shared, reserved, multicast, and IPv4 inside IPv6."""
    assert not is_public(address)


def test_a_name_is_no_address() -> None:
    """Only literals can be judged."""
    with pytest.raises(ValueError, match="localhost"):
        is_public("localhost")
