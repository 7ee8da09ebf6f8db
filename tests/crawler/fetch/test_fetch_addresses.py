"""Addresses in whatever form they are written: nothing private is dialled, through a real fetcher and real sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from anabranch.crawler.extract.reading import header_links
from anabranch.crawler.extract.resolver import LinkResolver, gathered
from anabranch.crawler.outcomes.failures import AddressRefused
from anabranch.crawler.urls.parsing import canonical
from tests.crawler.fetch.servers import Web, get_raw, raw, saying
from tests.rows import each_row

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


#: URLs in headers, as bytes, that lead to a port of 127.0.0.1.
BYTES_OF_LOOPBACK = [
    b"http://127.0.0.1:%d/\xff",
    b"//127.0.0.1:%d/\xe4?\xe4",
    b"\x01 http://127.0.0.1:%d/\xc3\xa4\xc3",
    b"http:\\\\127.0.0.1:%d\\\xe4",
    b"http:/\xe4/../\\127.0.0.1:%d",  # a path
    b"ht\ttp://127.0.\t0.1:%d/\xff",
    b"http://\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1:%d/",
    b"http://127\xe3\x80\x820\xef\xbc\x8e0\xef\xbd\xa11:%d/\xff",
    b"http://\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.1:%d/\xff",
    b"http://1\xc2\xad27.0.0.1:%d/\xff",
    b"http://u\xff:p\xff@127.0.0.1:%d/",
    b"http://public.test%%00\xff@127.0.0.1:%d/",
    b"http://public.test@127.0.0.1:%d/\xff",
    b"http://0x7f.1:%d/\xff",
    b"http://%%31%%32%%37.1:%d/\xff",
]
#: And those that lead nowhere.
BYTES_OF_NOTHING = [
    b"http://127.0.0.1\xff:%d/",
    b"http://127.0.0.1%%00:%d/",
    b"http://127.0.0.1%%ff:%d/",
    b"http://127.0.0.1%%0d%%0aX:%d/",
    b"http://127.0.0.1\xe3\x80\x82\xff:%d/",
    b"http://[::1\xff]:%d/",
    b"http://[::\xef\xbc\x91]:%d/",
    b"http://\xff@\xff:%d/",
]


@pytest.mark.parametrize(("status", "field"), [(b"302 x", b"Location: %b"), (b"200 x", b"Link: <%b>;rel=next")])
async def test_what_a_header_names_in_bytes_is_refused_as_well(site: Web, status: bytes, field: bytes) -> None:
    """Its address is checked after its bytes are escaped."""
    port = await site.listen(saying(raw("Content-Length: 2", b"ok")))
    fetcher = site.fetcher(allow_private=False)
    for written in BYTES_OF_LOOPBACK:
        response = await get_raw(site, b"HTTP/1.1 %b\r\n%b\r\n\r\n" % (status, field % (written % port)))
        links, _ = gathered(header_links(response.headers, response.status), response.url, 10, LinkResolver())
        asked = site.connections
        (link,) = links
        with pytest.raises(AddressRefused, match="is not a public address"):
            await fetcher.get(link.url)
        assert site.connections == asked, written


@pytest.mark.parametrize("written", BYTES_OF_NOTHING)
async def test_a_host_of_bytes_is_none(site: Web, written: bytes) -> None:
    """Bytes that are no text are escaped behind the host only."""
    response = await get_raw(site, b"HTTP/1.1 302 x\r\nLocation: %b\r\n\r\n" % (written % 80))
    assert gathered(header_links(response.headers, response.status), response.url, 10, LinkResolver()) == ([], 0)


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


@each_row("host", ["[fe80::1%25eth0]", "[::1%lo]", "127.0.0.256", "0x7f.0.0.0.1", "127.0.0.1:80:80"])
def test_what_is_no_host_is_no_url(host: str) -> None:
    """WHATWG knows no scope in a URL, and no number that is too large for its place."""
    assert canonical(f"http://{host}/") is None
