"""Addresses in whatever form they are written: nothing private is dialled, through a real fetcher and real sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from anabranch.crawler.outcomes.failures import AddressRefused
from anabranch.crawler.urls.parsing import canonical
from tests.crawler.fetch.servers import Web, raw, saying

#: Hosts of URLs that all lead to 127.0.0.1, as WHATWG's parser reads them.
FORMS_OF_LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0x7f000001",
    "0x7f.1",
    "0X7F.0.0.0x1",
    "127.0.0.1.",
    "\uff11\uff12\uff17.\uff10.\uff10.\uff11",
    "%31%32%37.0.0.1",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
]

#: IPv6 literals that hold a private IPv4 address, or are no public address themselves.
PRIVATE_IPV6 = [
    "[::1]",
    "[::]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::127.0.0.1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[2a00:1450::5efe:127.0.0.1]",
    "[fe80::1]",
    "[fd00::1]",
    "[ff02::1]",
]


@pytest.fixture
async def port(site: Web) -> int:
    """A server on 127.0.0.1."""
    return await site.listen(saying(raw("Content-Length: 2", b"ok")))


def at(host: str, port: int) -> str:
    url = canonical(f"http://{host}:{port}/")
    assert url
    return url


@pytest.mark.parametrize("host", FORMS_OF_LOOPBACK)
async def test_every_form_of_loopback_is_refused_and_nothing_is_dialled(site: Web, port: int, host: str) -> None:
    """Decimal, octal, hexadecimal, shortened, full-width and escaped IPv4 hosts, and IPv4 inside IPv6."""
    with pytest.raises(AddressRefused, match="is not a public address"):
        await site.fetcher(allow_private=False).get(at(host, port))
    assert site.connections == 0


@pytest.mark.parametrize("host", FORMS_OF_LOOPBACK)
async def test_each_of_these_forms_does_lead_to_loopback(site: Web, port: int, host: str) -> None:
    """So the refusals above were needed: who allows private addresses gets the page."""
    assert (await site.fetcher().get(at(host, port))).status == 200
    assert site.connections == 1


@pytest.mark.parametrize("host", PRIVATE_IPV6)
async def test_ipv6_forms_of_what_is_private_are_refused(site: Web, host: str) -> None:
    """Before any packet leaves."""
    with pytest.raises(AddressRefused, match="is not a public address"):
        await site.fetcher(allow_private=False).get(at(host, 80))


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::ffff:127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "64:ff9b::7f00:1"]
)
async def test_a_name_that_leads_there_is_refused_as_well(site: Web, port: int, address: str) -> None:
    """It is the address that counts, wherever it came from."""
    site.hosts["a.test"] = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    with pytest.raises(AddressRefused, match="is not a public address"):
        await site.fetcher(allow_private=False).get(f"http://a.test:{port}/")
    assert site.connections == 0


async def test_an_ipv6_loopback_server_is_reached_only_if_it_is_allowed(site: Web) -> None:
    """A real IPv6 socket, where the system has any."""
    try:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "::1", 0, family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(AddressRefused):
        await site.fetcher(allow_private=False).get(f"http://[::1]:{port}/")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("host", ["[fe80::1%25eth0]", "[::1%lo]", "127.0.0.256", "0x7f.0.0.0.1", "127.0.0.1:80:80"])
def test_what_is_no_host_is_no_url(host: str) -> None:
    """WHATWG knows no scope in a URL, and no number that is too large for its place."""
    assert canonical(f"http://{host}/") is None
