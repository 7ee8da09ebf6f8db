"""How a fetch fails, by real servers on loopback; and the addresses that are not dialled."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest
import structlog

from anabranch.crawler.fetch import connections
from anabranch.crawler.fetch.addresses import Address, parse_address
from anabranch.crawler.fetch.connection_limits import ConnectionLimits
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.fetch.options import FetchOptions
from anabranch.crawler.fetch.repairs import Repair
from anabranch.crawler.fetch.response import Response, Scratch
from anabranch.crawler.outcomes.failures import (
    TROUBLES,
    AddressRefused,
    BadHttp,
    CertificateRefused,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    NameNotFound,
    NameTimeout,
    Unfetchable,
)
from tests.crawler.fetch.servers import LIMIT_S, MAX_BODY, PEM, RSA_PEM, Clock, Web, get_raw, raw, refused_port, saying

if TYPE_CHECKING:
    from pathlib import Path


# Failures


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (b"H",),
        (b"HTTP/1.1 200 OK\r\nContent-Le",),
        (b"HTTP/1.1 200 OK\r\nPHP Warning\r\nContent-Le",),
        (raw("Content-Length: 10", b"half"),),
        (raw("Content-Length: 10"), b"half"),
        (raw("Transfer-Encoding: chunked", b"5\r\nhello\r\n"),),
        (b"\r\n\r\n" * 100_000,),
    ],
)
async def test_a_broken_answer_is_a_lost_connection(site: Web, parts: tuple[bytes, ...]) -> None:
    """Closed too early, or without end; one line says what."""
    with pytest.raises(ConnectionLost) as caught:
        await get_raw(site, *parts)
    assert_one_line(str(caught.value))


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>no HTTP at all",
        b"HTTP/1.1 042 Low\r\nConnection: close\r\n\r\n",
        raw("Content-Length: 5\r\nContent-Length: 6", b"hello"),
        raw("Transfer-Encoding: chunked", b"ZZ\r\n"),
        raw("Transfer-Encoding: chunked", b"4\r\nhalf\r\nZZ\r\n"),
        raw("Transfer-Encoding: chunked\r\nContent-Length: 5", b"hello"),
    ],
)
async def test_what_is_no_http_tells_nothing_of_how_the_host_is(site: Web, answer: bytes) -> None:
    """It did answer: lengths that contradict each other, chunks without sizes behind the head; one line says what."""
    with pytest.raises(BadHttp) as caught:
        await get_raw(site, answer)
    assert_one_line(str(caught.value))
    assert BadHttp not in TROUBLES


def assert_one_line(message: str) -> None:
    assert message
    assert "\n" not in message
    assert len(message) <= 300


async def test_a_reset_is_a_lost_connection(site: Web) -> None:
    """A connection that is aborted in the body."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(raw("Content-Length: 10", b"half"))(reader, writer)
        writer.transport.abort()

    port = await site.listen(talk)
    with pytest.raises(ConnectionLost):
        await site.fetcher().get(f"http://127.0.0.1:{port}/")


async def test_a_refused_connection_is_a_failed_connect(site: Web) -> None:
    """The error carries the times of its fetch and what caused it."""
    with pytest.raises(ConnectFailed, match=r"^connection refused$") as caught:
        await site.fetcher().get(f"http://127.0.0.1:{await refused_port()}/")
    assert (caught.value.start_s, caught.value.end_s) == (1000.0, 1001.0)
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_server_without_tls_is_a_failed_connect(site: Web) -> None:
    """An https URL of a server that speaks something else."""

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 a.test ready\r\n")

    port = await site.listen(talk)
    with pytest.raises(ConnectFailed):
        await site.fetcher().get(f"https://127.0.0.1:{port}/")


async def test_certificates_are_verified(site: Web, tmp_path: Path) -> None:
    """A self-signed certificate is refused, for good: it says nothing of the host."""
    pem = tmp_path / "server.pem"
    pem.write_text(PEM)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    port = await site.listen(saying(raw("Content-Length: 0")), tls)
    site.hosts["a.test"] = "127.0.0.1"
    with pytest.raises(CertificateRefused, match="certificate verify failed"):
        await site.fetcher().get(f"https://a.test:{port}/")


@pytest.mark.parametrize(
    "url",
    ["ftp://a.test/", "http:///x", "a.test", "http://127.0.0.1:99999/", "http://[::1/", "http://2130706433/", ""],
)
async def test_what_is_no_http_url_is_unfetchable(site: Web, url: str) -> None:
    """Other schemes, no host, bad ports, numbers that are no address."""
    with pytest.raises(Unfetchable):
        await site.fetcher().get(url)


async def test_errors_of_the_resolver_come_out_as_they_are(site: Web) -> None:
    """NameNotFound stays NameNotFound, with the times of the fetch."""
    with pytest.raises(NameNotFound, match=r"^no address for no\.\.test: ") as caught:
        await site.fetcher().get("http://no..test/")
    assert (caught.value.start_s, caught.value.end_s) == (1000.0, 1001.0)


# Addresses


class Fixed(Resolver):
    """A resolver with one answer, or one failure, for every name."""

    def __init__(self, *answer: str, failure: FetchError | None = None) -> None:
        super().__init__([], {}, clock=Clock())
        self._answer = tuple(map(parse_address, answer))
        self._failure = failure

    async def resolve(self, host: str) -> tuple[Address, ...]:
        del host
        if self._failure is not None:
            raise self._failure
        return self._answer


async def get_from(resolver: Resolver, url: str = "http://a.test/") -> Response:
    fetcher = Fetcher(
        FetchOptions(user_agent="x", timeout_s=LIMIT_S, max_body_bytes=MAX_BODY),
        resolver=resolver,
        scratch=Scratch(None),
        clock=Clock(),
    )
    try:
        return await fetcher.get(url)
    finally:
        await fetcher.close()


async def test_a_name_time_out_comes_out_as_itself() -> None:
    """A NameTimeout is neither a FetchTimeout nor a failed connect."""
    with pytest.raises(NameTimeout, match=r"^slow$"):
        await get_from(Fixed(failure=NameTimeout("slow")))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "a.test", "localhost"])
async def test_private_addresses_are_refused_however_they_are_written(site: Web, host: str) -> None:
    """Literals, names of the order's table, names of the system: no connection is made."""
    port = await site.listen(saying(raw("Content-Length: 0")))
    site.hosts["a.test"] = f"127.0.0.1:{port}"
    with pytest.raises(AddressRefused, match="is not a public address") as caught:
        await site.fetcher(allow_private=False).get(f"http://{host}:{port}/")
    assert (caught.value.start_s, caught.value.end_s) == (1000.0, 1001.0)
    assert site.connections == 0


async def test_a_host_with_only_private_addresses_is_refused() -> None:
    """Several addresses, several families, none allowed."""
    with pytest.raises(AddressRefused):
        await get_from(Fixed("127.0.0.1", "10.0.0.1", "::1"))


@pytest.mark.parametrize(
    "host",
    [
        "[::]",
        "[::127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "0.0.0.0",
    ],
)
async def test_no_form_of_ipv6_leads_to_a_private_address(site: Web, host: str) -> None:
    """Mapped, compatible, NAT64, 6to4, link-local, unique local: none is dialled."""
    with pytest.raises(AddressRefused):
        await site.fetcher(allow_private=False).get(f"http://{host}/")


class Rebound(Resolver):
    """A name server that gives another answer each time it is asked."""

    def __init__(self, *answers: str) -> None:
        super().__init__([], {}, clock=Clock())
        self._answers = [parse_address(answer) for answer in answers]

    async def resolve(self, host: str) -> tuple[Address, ...]:
        del host
        return (self._answers.pop(0),)


async def test_a_name_that_changes_to_a_private_address_is_refused(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the check is of the address that is dialled, not of an earlier answer."""
    monkeypatch.setattr(connections, "is_public", lambda address: address == "127.0.0.1")
    port = await site.listen(saying(raw("Content-Length: 2", b"hi")))
    resolver = Rebound(f"127.0.0.1:{port}", f"127.0.0.2:{port}")
    fetcher = Fetcher(FetchOptions(user_agent="x"), resolver=resolver, scratch=Scratch(None), clock=Clock())
    try:
        assert (await fetcher.get("http://a.test/")).body.read() == b"hi"
        with pytest.raises(AddressRefused, match=r"127\.0\.0\.2"):
            await fetcher.get("http://a.test/")
    finally:
        await fetcher.close()
    assert site.connections == 1


async def test_a_redirect_to_a_private_address_is_not_followed(site: Web) -> None:
    """It is an answer; where it leads is fetched as any other URL, and refused."""
    moved = b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    port = await site.listen(saying(moved))
    response = await site.fetcher().get(f"http://127.0.0.1:{port}/")
    assert response.location == "http://169.254.169.254/"
    with pytest.raises(AddressRefused):
        await site.fetcher(allow_private=False).get(response.location)


@pytest.mark.parametrize(("family", "host"), [("ipv4", "127.0.0.1"), ("ipv6", "[::1]")])
async def test_a_family_that_is_off_is_not_dialled(site: Web, family: str, host: str) -> None:
    """A host that has no other address cannot be reached."""
    port = await site.listen(saying(raw("Content-Length: 0")))
    with pytest.raises(ConnectFailed, match="switched off"):
        await site.fetcher(**{family: False}).get(f"http://{host}:{port}/")
    assert site.connections == 0


async def test_certificates_need_not_be_valid_if_the_order_says_so(site: Web, tmp_path: Path) -> None:
    """With a warning, since anybody may answer then."""
    pem = tmp_path / "server.pem"
    pem.write_text(PEM)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    port = await site.listen(saying(raw("Content-Length: 2", b"hi")), tls)
    with structlog.testing.capture_logs() as logs:
        fetcher = site.fetcher(tls_verify=False)
    assert (await fetcher.get(f"https://127.0.0.1:{port}/")).body.read() == b"hi"
    assert [(line["log_level"], line["event"][:29]) for line in logs] == [("warning", "certificates are not verified")]


#: The 1,024-bit group of RFC 2409, as OpenSSL reads it: above all its prime.
SHORT_GROUP = """-----BEGIN DH PARAMETERS-----
MIGHAoGBAP//////////yQ/aoiFowjTExmKLgNwc0SkCTgiKZ8x0Agu+pjsTmyJR
Sgh5jjQE3e+VGbPNOkMbMCsKbfJfFDdP4TVtbVHCReSFtXZiXn7G9ExC6aY37WsL
/1y29Aa37e44a/taiZ+lrp8kEXxLH+ZJKGZR7OZTgf//////////AgEC
-----END DH PARAMETERS-----
"""


def old_tls(folder: Path, ciphers: str) -> ssl.SSLContext:
    """A server of TLS 1.2 with these ciphers alone, and a short group."""
    for name, text in (("server.pem", RSA_PEM), ("dh.pem", SHORT_GROUP)):
        (folder / name).write_text(text)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    tls.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    tls.load_cert_chain(folder / "server.pem")
    tls.load_dh_params(folder / "dh.pem")
    return tls


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request, over one connection."""
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")


@pytest.mark.parametrize("ciphers", ["AES128-GCM-SHA256", "AES256-SHA", "DHE-RSA-AES128-GCM-SHA256"])
async def test_servers_of_old_tls_are_archived_and_noted(site: Web, tmp_path: Path, ciphers: str) -> None:
    """RSA key exchange, SHA-1, a group of 1,024 bits; unless the order forbids it. Over a kept connection, too."""
    port = await site.listen(greet, old_tls(tmp_path, ciphers))
    fetcher = site.fetcher(tls_verify=False)
    for _ in range(2):
        response = await fetcher.get(f"https://127.0.0.1:{port}/")
        assert (response.body.read(), response.repairs) == (b"hi", (Repair.OLD_TLS,))
    with pytest.raises(ConnectFailed):
        await site.fetcher(tls_verify=False, tls_old=False).get(f"https://127.0.0.1:{port}/")


async def test_fetches_that_share_a_connection_of_old_tls_all_note_it(site: Web, tmp_path: Path) -> None:
    """Those that waited for it, too."""
    port = await site.listen(greet, old_tls(tmp_path, "AES128-GCM-SHA256"))
    fetcher = site.fetcher(tls_verify=False, connections=ConnectionLimits(busy=1))
    responses = await asyncio.gather(*(fetcher.get(f"https://127.0.0.1:{port}/") for _ in range(3)))
    assert [response.repairs for response in responses] == [(Repair.OLD_TLS,)] * 3


async def test_a_server_without_tls_is_asked_once(site: Web) -> None:
    """Old TLS is tried only where it may help."""

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    port = await site.listen(talk)
    with pytest.raises(ConnectFailed):
        await site.fetcher().get(f"https://127.0.0.1:{port}/")
    assert site.connections == 1


async def test_old_tls_needs_a_valid_certificate(site: Web, tmp_path: Path) -> None:
    """Nobody gains by offering less."""
    port = await site.listen(saying(raw("Content-Length: 2", b"hi")), old_tls(tmp_path, "AES128-GCM-SHA256"))
    with pytest.raises(CertificateRefused):
        await site.fetcher().get(f"https://127.0.0.1:{port}/")


@pytest.fixture
def one_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 counts as public here, so that there is something to connect to."""
    monkeypatch.setattr(connections, "is_public", lambda address: address == "127.0.0.1")


@pytest.mark.usefixtures("one_public")
async def test_of_a_hosts_addresses_only_the_public_ones_are_dialled(site: Web) -> None:
    """A private address among public ones is passed over."""
    port = await site.listen(saying(raw("Content-Length: 2", b"hi")))
    response = await get_from(Fixed(f"10.0.0.1:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"))
    assert (response.body.read(), response.address) == (b"hi", "127.0.0.1")


@pytest.mark.usefixtures("one_public")
async def test_a_host_with_a_public_address_that_is_down_may_come_back() -> None:
    """ConnectFailed, not the final AddressRefused, whatever its other addresses are."""
    port = await refused_port()
    with pytest.raises(ConnectFailed):
        await get_from(Fixed(f"127.0.0.1:{port}", "10.0.0.1", "::1"))
