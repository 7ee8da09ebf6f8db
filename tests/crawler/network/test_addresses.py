"""One grammar for `ip[:port]`, in the order and in the resolver."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.crawler.network.addresses import Address, interleaved, ip_literal, parse_address

ROOT = Path(__file__).parents[3]
V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
        "import sys, anabranch.crawler.network.addresses; print({'aiodns', 'pycares', 'pydantic'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize(
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
