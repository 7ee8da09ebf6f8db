"""SOCKS5 (RFC 1928, RFC 1929) with a proxy of this test: what it is told, and what its answers mean."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from anabranch.crawler.outcomes.failures import CertificateRefused, ConnectionLost, ProxyFailed
from tests.crawler.fetching.servers import PEM, Web, raw, saying

HI = raw("Content-Length: 2", b"hi")
ANSWER = saying(HI)
READY = b"\x05\x00"
CONNECTED = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    """Servers and fetchers, closed at the end."""
    site = Web()
    yield site
    await site.close()


class Proxy:
    """A SOCKS5 proxy that notes what it hears, then talks as `then` says (by default as an HTTP server)."""

    def __init__(
        self,
        *answers: bytes,
        then: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = ANSWER,
    ) -> None:
        self._answers = answers
        self._then = then
        self.heard: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in self._answers:
            self.heard.append(await reader.read(1000))
            writer.write(answer)
        if self._answers[-1].startswith(CONNECTED[:3]):
            await self._then(reader, writer)


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("a.test", b"\x03\x06a.test"),
        ("93.184.216.34", b"\x01\x5d\xb8\xd8\x22"),
        ("[2606:4700::1111]", b"\x04\x26\x06\x47\x00" + bytes(10) + b"\x11\x11"),
    ],
)
async def test_the_proxy_is_told_the_name_and_dials_for_us(site: Web, host: str, written: bytes) -> None:
    """The name is not resolved here. The proxy's own address may be private."""
    proxy = Proxy(READY, CONNECTED)
    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(proxy)}", allow_private=False)
    response = await fetcher.get(f"http://{host}:8080/x")
    assert (response.body.read(), response.address) == (b"hi", "")
    assert response.request.startswith(b"GET /x HTTP/1.1\r\n")
    assert proxy.heard == [b"\x05\x01\x00", b"\x05\x01\x00" + written + (8080).to_bytes(2, "big")]


async def test_user_and_password_are_told_if_they_are_given(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 1929."""
    monkeypatch.setenv("SECRET", "pass")
    proxy = Proxy(b"\x05\x02", b"\x01\x00", CONNECTED)
    url = f"socks5://me@127.0.0.1:{await site.listen(proxy)}"
    assert (await site.fetcher(proxy=url, proxy_password_env="SECRET").get("http://a.test/")).status == 200
    assert proxy.heard[:2] == [b"\x05\x01\x02", b"\x01\x02me\x04pass"]


@pytest.mark.parametrize("kind", [b"\x03\x04name\x00\x50", b"\x04" + bytes(18)])
async def test_the_address_that_the_proxy_answers_is_passed_over(site: Web, kind: bytes) -> None:
    """Whatever its type: what follows it is the host's."""
    proxy = Proxy(READY, b"\x05\x00\x00" + kind)
    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(proxy)}")
    assert (await fetcher.get("http://a.test/")).body.read() == b"hi"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((b"HT",), "the proxy does not speak SOCKS5"),
        ((b"\x05\xff",), "the proxy wants other credentials, or none"),
        ((b"\x05",), "the proxy closed the connection"),
        ((READY, b"\x05\x05\x00\x01"), "the proxy does not connect: the connection was refused"),
        ((READY, b"\x05\x63\x00\x01"), "the proxy does not connect: reply 99"),
    ],
)
async def test_a_proxy_that_does_not_connect_fails_by_itself(site: Web, answers: tuple[bytes, ...], words: str) -> None:
    """Nothing is known of the host."""
    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(Proxy(*answers))}")
    with pytest.raises(ProxyFailed, match=f"^{words}$"):
        await fetcher.get("http://a.test/")


async def test_a_refused_password_is_told_and_not_shown(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 1929: a status that is not 0."""
    monkeypatch.setenv("SECRET", "hush")
    url = f"socks5://me@127.0.0.1:{await site.listen(Proxy(bytes((5, 2)), bytes((1, 1))))}"
    with pytest.raises(ProxyFailed, match=r"^the proxy refuses the user or the password$"):
        await site.fetcher(proxy=url, proxy_password_env="SECRET").get("http://a.test/")


async def test_a_proxy_that_says_nothing_is_too_slow(site: Web) -> None:
    """The time for connecting is for the proxy, too."""

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(talk)}", connect_timeout_s=0.2)
    with pytest.raises(ProxyFailed, match="the proxy was too slow"):
        await fetcher.get("http://a.test/")


async def test_certificates_are_verified_behind_the_proxy(site: Web, tmp_path: Path) -> None:
    """TLS is with the host, not with the proxy."""
    pem = tmp_path / "server.pem"
    pem.write_text(PEM)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)

    async def secured(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(tls)

    port = await site.listen(Proxy(READY, CONNECTED, then=secured))
    with pytest.raises(CertificateRefused):
        await site.fetcher(proxy=f"socks5://127.0.0.1:{port}").get("https://a.test/")


async def test_connections_through_a_proxy_are_kept_and_bounded_like_others(site: Web) -> None:
    """One connection for two fetches; an answer's head has the same limit."""

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000)

    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(Proxy(READY, CONNECTED, then=twice))}")
    assert (await fetcher.get("http://a.test/")).body.read() == b"hi"
    assert site.connections == 1
    with pytest.raises(ConnectionLost, match="more than 131072 bytes of headers"):
        await fetcher.get("http://a.test/")
    assert site.connections == 1
