"""Proxies: how they are written, what they are told, and what they hide."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.crawler.fetching.options import Site
from anabranch.crawler.fetching.proxies import Proxy, parse_proxy
from anabranch.crawler.outcomes.failures import AddressRefused, ProxyFailed
from tests.crawler.fetching.servers import Web, get_raw, raw, refused_port

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


@pytest.mark.parametrize(
    "text", ["p", "p:3128", "ftp://p", "http://", "http://p/x", "http://p?x", "http://p:99999", "http://[p"]
)
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
    fetcher = site.fetcher(proxy=proxy, proxy_password_env="SECRET", allow_private=False)
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
    with pytest.raises(ProxyFailed, match="the proxy answers 403 Not you"):
        await site.fetcher(proxy=proxy).get("https://no-such-name.invalid/secret")
    assert seen[0].startswith(b"CONNECT no-such-name.invalid:443 HTTP/1.1\r\n")
    assert b"secret" not in seen[0]


REFUSAL = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("url", ["http://a.invalid/robots.txt", "https://a.invalid/"])
@pytest.mark.parametrize(
    ("user", "words"), [("me@", "refuses the user or the password"), ("", "wants a user and a password")]
)
async def test_a_407_of_a_proxy_is_no_answer_of_the_site(site: Web, url: str, user: str, words: str) -> None:
    """Asked for the page or for a connection: the operator hears what the proxy wants, the host's gate nothing."""
    proxy = (await http_proxy(site, [], REFUSAL)).replace("me@", user)
    with pytest.raises(ProxyFailed, match=rf"^the proxy {words} \(407\)$"):
        await site.fetcher(proxy=proxy).get(url)


async def test_a_407_without_a_proxy_is_the_sites_answer(site: Web) -> None:
    """An odd one."""
    assert (await get_raw(site, REFUSAL)).status == 407


@pytest.mark.parametrize("status", [403, 502, 504])
async def test_what_a_proxy_says_for_the_page_is_the_sites_answer(site: Web, status: int) -> None:
    """Nobody can tell whose 502 it is; only when asked to connect is it the proxy's."""
    proxy = await http_proxy(site, [], f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
    fetcher = site.fetcher(proxy=proxy)
    assert (await fetcher.get("http://a.invalid/")).status == status
    with pytest.raises(ProxyFailed, match=f"the proxy answers {status} No"):
        await fetcher.get("https://a.invalid/")


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_that_is_not_there_is_not_the_hosts_failure(site: Web, scheme: str) -> None:
    """The host's gate hears nothing of it."""
    with pytest.raises(ProxyFailed):
        await site.fetcher(proxy=f"{scheme}://127.0.0.1:{await refused_port()}").get("http://a.test/")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "10.0.0.1:81"])
async def test_private_addresses_in_the_url_are_refused_behind_a_proxy_too(site: Web, host: str) -> None:
    """What a name leads to only the proxy knows; it is not asked for these."""
    seen: list[bytes] = []
    fetcher = site.fetcher(proxy=await http_proxy(site, seen), allow_private=False)
    with pytest.raises(AddressRefused, match="is not a public address"):
        await fetcher.get(f"http://{host}/")
    assert (seen, site.connections) == ([], 0)


async def test_a_site_may_have_a_proxy_of_its_own(site: Web) -> None:
    """The others are dialled."""
    seen: list[bytes] = []
    direct: list[bytes] = []
    site.hosts["b.test"] = (await http_proxy(site, direct)).partition("@")[2]
    fetcher = site.fetcher(Site(surts=("a.test",), proxy=await http_proxy(site, seen)))
    assert (fetcher.uses_proxy("http://a.test/"), fetcher.uses_proxy("http://b.test/")) == (True, False)
    assert (await fetcher.get("http://a.test/")).address == ""
    assert (await fetcher.get("http://b.test/")).address == "127.0.0.1"
    assert (seen[0].split()[1], direct[0].split()[1]) == (b"http://a.test/", b"/")
