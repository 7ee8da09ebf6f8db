"""Proxies: how they are written, what they are told, and what they hide."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from anabranch.crawler.fetch.options import SiteOptions
from anabranch.crawler.fetch.proxy import Proxy, parse_proxy
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.failures import (
    AddressRefused,
    CertificateRefused,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    ProxyRefused,
    ServiceAway,
)
from tests.crawler.fetch.servers import PEM, Web, get_raw, raw, refused_port, saying
from tests.rows import each_row

OK_HI = raw("Content-Length: 2", b"hi")


@pytest.mark.parametrize(
    ("text", "proxy"),
    [
        ("http://p", Proxy("http", "p", 80)),
        ("https://p:8443/", Proxy("https", "p", 8443)),
        ("socks5://127.0.0.1", Proxy("socks5", "127.0.0.1", 1080)),
        ("socks5://me%40home@[::1]:9", Proxy("socks5", "::1", 9, "me@home")),
    ],
)
def test_a_proxy_is_a_url(text: str, proxy: Proxy) -> None:
    """Scheme, host, port, user; its port may be the usual one."""
    assert parse_proxy(text) == proxy


@each_row("text", ["p", "p:3128", "ftp://p", "http://", "http://p/x", "http://p?x", "http://p:99999", "http://[p"])
def test_what_is_no_proxy_is_refused(text: str) -> None:
    """One line."""
    with pytest.raises(ValueError, match=r"^(must be like|is no URL)"):
        parse_proxy(text)


def test_credentials_that_do_not_fit_are_refused() -> None:
    """SOCKS5 has a byte for their length."""
    with pytest.raises(ValueError, match="255 bytes"):
        parse_proxy("socks5://p", "x" * 256)


def test_a_proxys_url_has_no_credentials() -> None:
    """It may be shown."""
    assert Proxy("socks5", "::1", 9, "me", "secret").url == "socks5://[::1]:9"


async def http_proxy(site: Web, seen: list[bytes], answer: bytes = OK_HI) -> str:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)

    return f"http://me@127.0.0.1:{await site.listen(talk)}"


async def test_an_http_proxy_gets_the_whole_url_and_the_credentials(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is left to it; our record shows neither the credentials nor an address."""
    monkeypatch.setenv("SECRET", "pass")
    seen: list[bytes] = []
    proxy = await http_proxy(site, seen)
    fetcher = site.fetcher(proxy=proxy, proxy_password_env="SECRET", allow_private=False, proxy_resolves=True)
    response = await fetcher.get("http://no-such-name.invalid/x?y")
    assert (response.body.read(), response.address) == (b"hi", "")
    assert seen[0].startswith(b"GET http://no-such-name.invalid/x?y HTTP/1.1\r\nHost: no-such-name.invalid\r\n")
    credentials = b"Proxy-Authorization: Basic bWU6cGFzcw==\r\n"
    assert credentials in seen[0]
    assert response.request == seen[0].replace(credentials, b"")


async def test_an_https_url_goes_through_an_http_proxy_by_connect(site: Web) -> None:
    """It hears the host and the port, and nothing else; if it refuses, nothing is known of the host."""
    seen: list[bytes] = []
    proxy = await http_proxy(site, seen, b"HTTP/1.1 403 Not you\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(ProxyRefused, match=r"its rules do not allow it \(403\)"):
        await site.fetcher(proxy=proxy).get("https://no-such-name.invalid/secret")
    assert seen[0].startswith(b"CONNECT no-such-name.invalid:443 HTTP/1.1\r\n")
    assert b"secret" not in seen[0]


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"HTTP/1.1  200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nWarning\r\n\r\n"]
)
async def test_a_proxy_that_answers_a_connect_in_bad_http_has_not_connected(site: Web, answer: bytes) -> None:
    """Its answer is not repaired, and is not the host's: the URL is tried again, and the host is not unreadable."""
    with pytest.raises(ConnectFailed, match=r"^the proxy answers in bad HTTP: "):
        await site.fetcher(proxy=await http_proxy(site, [], answer)).get("https://a.invalid/")


REFUSAL = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("url", ["http://a.invalid/robots.txt", "https://a.invalid/"])
@pytest.mark.parametrize(
    ("user", "words"), [("me@", "refuses the user or the password"), ("", "wants a user and a password")]
)
async def test_a_407_of_a_proxy_is_no_answer_of_the_site(site: Web, url: str, user: str, words: str) -> None:
    """Asked for the page or for a connection: the operator hears what the proxy wants, the host's gate nothing."""
    proxy = (await http_proxy(site, [], REFUSAL)).replace("me@", user)
    with pytest.raises(ProxyRefused, match=rf"^the proxy \S+ {words} \(407\)$") as refused:
        await site.fetcher(proxy=proxy).get(url)
    assert "me@" not in str(refused.value)


async def test_a_407_without_a_proxy_is_the_sites_answer(site: Web) -> None:
    """An odd one."""
    assert (await get_raw(site, REFUSAL)).status == 407


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_what_a_proxy_says_for_the_page_is_the_sites_answer(site: Web, status: int) -> None:
    """Nobody can tell whose 502 it is; only when asked to connect is it the proxy's."""
    proxy = await http_proxy(site, [], f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
    fetcher = site.fetcher(proxy=proxy)
    assert (await fetcher.get("http://a.invalid/")).status == status
    with pytest.raises(ConnectFailed, match=f"the proxy answers {status} No"):
        await fetcher.get("https://a.invalid/")


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_that_is_not_there_is_not_the_hosts_failure(site: Web, scheme: str) -> None:
    """The host's gate hears nothing of it."""
    with pytest.raises(
        ServiceAway, match=f"^proxy {scheme}://127.0.0.1:[0-9]+: it cannot be reached: connection refused$"
    ):
        await site.fetcher(proxy=f"{scheme}://127.0.0.1:{await refused_port()}").get("http://a.test/")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "10.0.0.1:81"])
async def test_private_addresses_in_the_url_are_refused_behind_a_proxy_too(site: Web, host: str) -> None:
    """The proxy is not asked for them. Only the proxy can check the addresses of names."""
    seen: list[bytes] = []
    fetcher = site.fetcher(proxy=await http_proxy(site, seen), allow_private=False, proxy_resolves=True)
    with pytest.raises(AddressRefused, match="is not a public address"):
        await fetcher.get(f"http://{host}/")
    assert (seen, site.connections) == ([], 0)


@pytest.mark.parametrize("entry", ["[fetch]", "[[site]] 1"])
async def test_a_proxy_needs_the_operators_word_that_it_refuses_private_addresses(site: Web, entry: str) -> None:
    """It looks names up, so the guard of addresses would see none; where they are allowed there is nothing to guard."""
    sites = [SiteOptions(surts=("a.test",), proxy="http://p")] if entry == "[[site]] 1" else []
    options: dict[str, str] = {} if sites else {"proxy": "http://p"}
    with pytest.raises(OrderError) as caught:
        site.fetcher(*sites, **options, allow_private=False)
    assert str(caught.value).startswith(f"{entry} proxy: the proxy looks names up, ")
    assert "[fetch] proxy_resolves = true" in str(caught.value)
    assert site.fetcher(*sites, **options, allow_private=False, proxy_resolves=True).uses_proxy("http://a.test/")
    assert site.fetcher(*sites, **options, allow_private=True).uses_proxy("http://a.test/")


async def test_a_site_may_have_a_proxy_of_its_own(site: Web) -> None:
    """The others are dialled."""
    seen: list[bytes] = []
    direct: list[bytes] = []
    site.hosts["b.test"] = (await http_proxy(site, direct)).partition("@")[2]
    fetcher = site.fetcher(SiteOptions(surts=("a.test",), proxy=await http_proxy(site, seen)))
    assert (fetcher.uses_proxy("http://a.test/"), fetcher.uses_proxy("http://b.test/")) == (True, False)
    assert (await fetcher.get("http://a.test/")).address == ""
    assert (await fetcher.get("http://b.test/")).address == "127.0.0.1"
    assert (seen[0].split()[1], direct[0].split()[1]) == (b"http://a.test/", b"/")


HI = raw("Content-Length: 2", b"hi")
ANSWER = saying(HI)
READY = b"\x05\x00"
CONNECTED = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"


class SocksServer:
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
    proxy = SocksServer(READY, CONNECTED)
    fetcher = site.fetcher(
        proxy=f"socks5://127.0.0.1:{await site.listen(proxy)}", allow_private=False, proxy_resolves=True
    )
    response = await fetcher.get(f"http://{host}:8080/x")
    assert (response.body.read(), response.address) == (b"hi", "")
    assert response.request.startswith(b"GET /x HTTP/1.1\r\n")
    assert proxy.heard == [b"\x05\x01\x00", b"\x05\x01\x00" + written + (8080).to_bytes(2, "big")]


async def test_user_and_password_are_told_if_they_are_given(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 1929."""
    monkeypatch.setenv("SECRET", "pass")
    proxy = SocksServer(b"\x05\x02", b"\x01\x00", CONNECTED)
    url = f"socks5://me@127.0.0.1:{await site.listen(proxy)}"
    assert (await site.fetcher(proxy=url, proxy_password_env="SECRET").get("http://a.test/")).status == 200
    assert proxy.heard[:2] == [b"\x05\x01\x02", b"\x01\x02me\x04pass"]


@pytest.mark.parametrize("kind", [b"\x03\x04name\x00\x50", b"\x04" + bytes(18)])
async def test_the_address_that_the_proxy_answers_is_passed_over(site: Web, kind: bytes) -> None:
    """Whatever its type: what follows it is the host's."""
    proxy = SocksServer(READY, b"\x05\x00\x00" + kind)
    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(proxy)}")
    assert (await fetcher.get("http://a.test/")).body.read() == b"hi"


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        ((b"HT",), ServiceAway, "it does not speak SOCKS5"),
        ((b"\x05\xff",), ProxyRefused, "wants other credentials, or none"),
        ((b"\x05",), ServiceAway, "the proxy closed the connection"),
        ((READY, b"\x05\x02\x00\x01"), ProxyRefused, "its rules do not allow it"),
        ((READY, b"\x05\x05\x00\x01"), ConnectFailed, "the proxy does not connect: the connection was refused"),
        ((READY, b"\x05\x63\x00\x01"), ConnectFailed, "the proxy does not connect: reply 99"),
    ],
)
async def test_the_reply_of_a_proxy_tells_whose_fault_it_is(
    site: Web, answers: tuple[bytes, ...], kind: type[FetchError], words: str
) -> None:
    """The proxy is away, or it refuses us, or it does not reach the host."""
    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(SocksServer(*answers))}")
    with pytest.raises(kind, match=words):
        await fetcher.get("http://a.test/")


async def test_a_refused_password_is_told_and_not_shown(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 1929: a status that is not 0."""
    monkeypatch.setenv("SECRET", "hush")
    url = f"socks5://me@127.0.0.1:{await site.listen(SocksServer(bytes((5, 2)), bytes((1, 1))))}"
    with pytest.raises(ProxyRefused, match=r"^the proxy socks5://\S+ refuses the user or the password$"):
        await site.fetcher(proxy=url, proxy_password_env="SECRET").get("http://a.test/")


async def test_a_proxy_that_says_nothing_is_too_slow(site: Web) -> None:
    """The time for connecting is for the proxy, too."""

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(talk)}", connect_timeout_s=0.2)
    with pytest.raises(ServiceAway, match="it was too slow"):
        await fetcher.get("http://a.test/")


async def test_certificates_are_verified_behind_the_proxy(site: Web, tmp_path: Path) -> None:
    """TLS is with the host, not with the proxy."""
    pem = tmp_path / "server.pem"
    pem.write_text(PEM)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)

    async def secured(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(tls)

    port = await site.listen(SocksServer(READY, CONNECTED, then=secured))
    with pytest.raises(CertificateRefused):
        await site.fetcher(proxy=f"socks5://127.0.0.1:{port}").get("https://a.test/")


async def test_connections_through_a_proxy_are_kept_and_bounded_like_others(site: Web) -> None:
    """One connection for two fetches; an answer's head has the same limit."""

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000)

    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(SocksServer(READY, CONNECTED, then=twice))}")
    assert (await fetcher.get("http://a.test/")).body.read() == b"hi"
    assert site.connections == 1
    with pytest.raises(ConnectionLost, match="more than 131072 bytes of headers"):
        await fetcher.get("http://a.test/")
    assert site.connections == 1


async def test_several_proxies_fetch_in_turn(site: Web) -> None:
    """Each request takes the next one; what a site sees comes from all of them."""
    asked: list[str] = []
    ports = [await site.listen(counting(name, asked)) for name in ("a", "b", "c")]
    fetcher = site.fetcher(proxy=[f"http://127.0.0.1:{port}" for port in ports])
    for number in range(6):
        (await fetcher.get(f"http://x.test/{number}")).body.close()
    assert sorted(asked) == ["a", "a", "b", "b", "c", "c"]
    assert asked[:3] == asked[3:]


async def test_while_one_of_several_proxies_is_away_the_others_fetch(site: Web) -> None:
    """No fetch fails by it, and none waits for it again until it was found to be back."""
    asked: list[str] = []
    port, gone = await site.listen(counting("a", asked)), await refused_port()
    fetcher = site.fetcher(proxy=[f"http://127.0.0.1:{gone}", f"http://127.0.0.1:{port}"])
    for number in range(4):
        (await fetcher.get(f"http://x.test/{number}")).body.close()
    assert asked == ["a"] * 4
    away, there = fetcher.proxies.values()
    assert await fetcher.fault_of(away) == ""
    assert not fetcher.may_use("x.test", away)
    assert fetcher.may_use("x.test", there)


async def test_if_all_of_several_proxies_are_away_the_service_is(site: Web) -> None:
    """As with one: the URL waits, and its try does not count."""
    fetcher = site.fetcher(proxy=[f"http://127.0.0.1:{await refused_port()}" for _ in range(2)])
    with pytest.raises(ServiceAway):
        await fetcher.get("http://x.test/")
    assert all(fetcher.may_use("x.test", proxy) for proxy in fetcher.proxies.values())
    assert await fetcher.fault_of(next(iter(fetcher.proxies.values())))


async def test_connections_come_from_the_address_that_the_order_names(site: Web) -> None:
    """Addresses of a family without one are not tried."""
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.append(writer.get_extra_info("peername")[0])
        writer.write(OK_HI)
        await writer.drain()

    port = await site.listen(answer)
    fetcher = site.fetcher(bind=("127.0.0.9",))
    (await fetcher.get(f"http://127.0.0.1:{port}/")).body.close()
    assert seen == ["127.0.0.9"]
    with pytest.raises(ConnectFailed, match="of a family that the order has switched off"):
        await fetcher.get(f"http://[::1]:{port}/")


async def test_a_socket_that_cannot_have_its_address_is_closed(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address may have gone since the crawl began, or its ports are used up."""
    made: list[socket.socket] = []

    class Unbound(socket.socket):
        def bind(self, address: object) -> None:
            made.append(self)
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is gone")

    fetcher = site.fetcher(bind=("127.0.0.9",))
    monkeypatch.setattr(socket, "socket", Unbound)
    with pytest.raises(ConnectFailed):
        await fetcher.get("http://127.0.0.1:9/")
    assert [one.fileno() for one in made] == [-1]


def counting(name: str, asked: list[str]) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A proxy that notes a request by its name, and answers it itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.append(name)
        writer.write(OK_HI)

    return answer
