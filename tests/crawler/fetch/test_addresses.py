"""One grammar for `ip[:port]`, in the order and in the resolver."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.crawler.fetch.addresses import (
    Address,
    AddressRecord,
    Lookup,
    ResolverOptions,
    interleaved,
    ip_literal,
    is_public,
    parse_address,
)
from tests.rows import each_row

ROOT = Path(__file__).parents[3]
V4, V6 = socket.AF_INET, socket.AF_INET6


@each_row(
    ("text", "host", "port", "family"),
    [
        ("127.0.0.1", "127.0.0.1", None, V4),
        ("127.0.0.1:5353", "127.0.0.1", 5353, V4),
        ("127.0.0.1:0053", "127.0.0.1", 53, V4),
        ("::1", "::1", None, V6),
        ("::1:53", "::1:53", None, V6),
        ("0:0::1", "::1", None, V6),
        ("[::1]", "::1", None, V6),
        ("[::1]:65535", "::1", 65535, V6),
    ],
)
def test_an_address_is_an_ip_literal_with_or_without_a_port(
    text: str, host: str, port: int | None, family: socket.AddressFamily
) -> None:
    """IPv6 with a port stands in brackets, so that its last group is no port."""
    assert parse_address(text) == Address(host=host, port=port, family=family)


@each_row(
    "text",
    [
        "",
        ":53",
        "localhost",
        "a.test:53",
        "1.2.3",
        "1.2.3.4:",
        "1.2.3.4:0",
        "1.2.3.4:65536",
        "1.2.3.4:x",
        "1.2.3.4:\u0663",
        "1.2.3.4\n",
        "1:2:3:4:5:6:7:8:53",
        "[1.2.3.4]",
        "[::1",
        "::1]",
        "[::1]53",
        "[::1]:0",
        "[]",
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    """Names are refused: looking up the name server's name would need a name server."""
    with pytest.raises(ValueError, match="must be ip or ip:port") as caught:
        parse_address(text)
    assert str(caught.value).endswith(f"; not {text!r}")


@each_row(
    ("host", "literal"),
    [
        ("127.0.0.1", Address(host="127.0.0.1", family=V4)),
        ("[::1]", Address(host="::1", family=V6)),
        ("::1", Address(host="::1", family=V6)),
        ("a.test", None),
        ("127.0.0.1:80", None),
        ("[::1", None),
    ],
)
def test_a_host_that_is_an_address_says_so(host: str, literal: Address | None) -> None:
    """A host has no port; as IPv6 it has its brackets in a URL."""
    assert ip_literal(host) == literal


def test_the_addresses_need_no_library() -> None:
    """Order and resolver share them: neither must load the other's library."""
    script = (
        "import sys, anabranch.crawler.fetch.addresses; print({'aiodns', 'pycares', 'pydantic'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@each_row(
    ("given", "expected"),
    [
        ([], []),
        (["1.1.1.1", "1.1.1.2"], ["1.1.1.1", "1.1.1.2"]),
        (["::1", "::2", "::3", "1.1.1.1"], ["::1", "1.1.1.1", "::2", "::3"]),
        (["1.1.1.1", "1.1.1.2", "::1", "::2"], ["1.1.1.1", "::1", "1.1.1.2", "::2"]),
        (["1.1.1.1", "::1", "::2", "::3"], ["1.1.1.1", "::1", "::2", "::3"]),
    ],
)
def test_the_families_take_turns_in_the_order_they_came(given: list[str], expected: list[str]) -> None:
    """RFC 8305, section 4: the first one's family begins."""
    assert [address.host for address in interleaved(map(parse_address, given))] == expected


@each_row(
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


@each_row(
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


def test_a_lookup_is_shown_as_heritrix_shows_it() -> None:
    """`dns:host`, status 1, and the time with the resource records behind it."""
    made = Lookup(
        host="a.test",
        start_s=1_767_225_600.9,
        end_s=1_767_225_601.0,
        records=(AddressRecord("A", "192.0.2.1", 300), AddressRecord("AAAA", "2001:db8::1", 60)),
    )
    assert (made.url, made.status) == ("dns:a.test", 1)
    assert made.body == b"20260101000000\na.test.\t300\tIN\tA\t192.0.2.1\na.test.\t60\tIN\tAAAA\t2001:db8::1\n"


def test_a_lookup_that_failed_has_no_record() -> None:
    """Status -1."""
    made = Lookup(host="a.test", start_s=1.0, end_s=2.0, reason="no address for a.test: no such name")
    assert (made.status, made.body) == (-1, b"")


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "family", "wanted"),
    [
        (True, True, socket.AF_UNSPEC, {"1.1.1.1", "2a00::1"}),
        (True, False, socket.AF_INET, {"1.1.1.1"}),
        (False, True, socket.AF_INET6, {"2a00::1"}),
    ],
)
def test_a_family_can_be_switched_off(ipv4: bool, ipv6: bool, family: socket.AddressFamily, wanted: set[str]) -> None:
    """For questions and for addresses that are there already."""
    options = ResolverOptions(ipv4=ipv4, ipv6=ipv6)
    assert options.family == family
    assert {text for text in ("1.1.1.1", "2a00::1") if options.wants(parse_address(text))} == wanted


def test_what_could_never_find_anything_is_refused() -> None:
    """Both families off, or bounds that cross."""
    with pytest.raises(ValueError, match="ipv4 and ipv6 are both off"):
        ResolverOptions(ipv4=False, ipv6=False)
    with pytest.raises(ValueError, match="min_ttl 9 s is above max_ttl 8 s"):
        ResolverOptions(min_ttl_s=9, max_ttl_s=8)


def test_the_options_need_no_library() -> None:
    """The order reads them, and must be read quickly."""
    script = (
        "import sys, anabranch.crawler.fetch.addresses; print({'aiodns', 'pycares', 'pydantic'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
