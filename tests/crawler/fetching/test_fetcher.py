"""The fetcher against real servers on loopback: what is sent, what comes back, over which connections."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import zlib

import pytest
from aiohttp import web
from aiohttp.client_reqrep import ClientRequest

from crawler.fetching.fetcher import ACCEPT, MAX_HEADER_BYTES, MAX_HEADERS
from crawler.outcomes.failures import ConnectionLost
from tests.crawler.fetching.servers import OK, Web, get_raw, raw, refused_port, saying

# What is sent


async def test_the_request_says_who_we_are_and_what_we_take(site: Web) -> None:
    """User-Agent, Accept, and the encodings that can be decoded here; no cookie, one Host."""
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        response = web.Response(text="hi")
        response.set_cookie("a", "b")
        return response

    port = await site.serve(handler)
    fetcher = site.fetcher()
    for _ in range(2):
        await fetcher.get(f"http://127.0.0.1:{port}/")
    headers = seen[1].headers
    assert headers["User-Agent"] == "anabranch/0 (+https://x.test)"
    assert headers["Accept"] == ACCEPT
    assert headers["Accept-Encoding"] == ClientRequest.DEFAULT_HEADERS["Accept-Encoding"]
    assert headers["Accept-Encoding"].startswith("gzip, deflate")
    assert headers.getall("Host") == [f"127.0.0.1:{port}"]
    assert "Cookie" not in headers


@pytest.mark.parametrize("target", ["/a%2fb/%7E/?q=%41+b&c='x'", "/%E4%B8%AD", "/a//b/../c;d=e", "/?", "/[x]|y"])
async def test_the_canonical_bytes_are_sent_unchanged(site: Web, target: str) -> None:
    """What dedup saw is what the server sees."""
    lines: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        await saying(raw("Content-Length: 0"))(reader, writer)

    port = await site.listen(talk)
    await site.fetcher().get(f"http://127.0.0.1:{port}{target}")
    assert lines == [f"GET {target.removesuffix('?')} HTTP/1.1\r\n".encode()]


async def test_the_host_header_is_the_urls_host_even_if_the_port_is_another(site: Web) -> None:
    """The table may lead a.test:80 to another port; the server still hears a.test."""
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers["Host"])
        return web.Response()

    site.hosts["a.test"] = f"127.0.0.1:{await site.serve(handler)}"
    fetcher = site.fetcher()
    await fetcher.get("http://a.test/")
    await fetcher.get("http://a.test:8080/")
    assert seen == ["a.test", "a.test:8080"]


async def test_proxies_of_the_environment_are_not_used(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which way the crawl goes is the order's business alone."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{await refused_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{await refused_port()}")
    assert (await get_raw(site, raw("Content-Length: 2", b"hi"))).body == b"hi"


# What comes back


async def test_a_response_holds_status_headers_body_address_and_times(site: Web) -> None:
    """Header names in any case, several values kept; times by the injected clock."""
    response = await get_raw(site, raw("Content-Type: text/html\r\nX: 1\r\nx: 2\r\nContent-Length: 2", b"hi"))
    assert (response.status, response.body, response.truncated) == (200, b"hi", False)
    assert response.headers["content-TYPE"] == "text/html"
    assert response.headers.getall("x") == ["1", "2"]
    assert response.address == "127.0.0.1"
    assert (response.start_s, response.end_s) == (1000.0, 1001.0)


async def test_a_redirect_is_an_answer(site: Web) -> None:
    """It is not followed; its Location is what the server wrote."""

    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=301, headers={"Location": "../b c?x#y"})

    response = await site.fetcher().get(f"http://127.0.0.1:{await site.serve(handler)}/a/")
    assert (response.status, response.headers["location"]) == (301, "../b c?x#y")


@pytest.mark.parametrize("status", [204, 304, 404, 429, 500])
async def test_every_status_is_an_answer(site: Web, status: int) -> None:
    """Bodies may be empty; errors of the server are answers of the server."""

    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status)

    response = await site.fetcher().get(f"http://127.0.0.1:{await site.serve(handler)}/")
    assert (response.status, response.body, response.truncated) == (status, b"", False)


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("x-unknown", b"hello"),
        ("identity", b"hello"),
    ],
)
async def test_a_body_is_decoded(site: Web, encoding: str, encoded: bytes) -> None:
    """Known codings (deflate with and without header) are undone; what is no known coding stays as it is."""
    headers = f"Content-Encoding: {encoding}\r\nContent-Length: {len(encoded)}"
    assert (await get_raw(site, raw(headers, encoded))).body == b"hello"


async def test_a_body_without_length_ends_with_the_connection(site: Web) -> None:
    """HTTP/1.0 style; chunked bodies end with their last chunk."""
    assert (await get_raw(site, raw("X: y", b"hel"), b"lo")).body == b"hello"
    chunked = raw("Transfer-Encoding: chunked", b"2\r\nhe\r\n"), b"3\r\nllo\r\n0\r\n\r\n"
    assert (await get_raw(site, *chunked)).body == b"hello"


async def test_long_headers_are_read(site: Web) -> None:
    """Real sites send policies and cookies longer than the library's usual 8 KiB."""
    value = "x" * (MAX_HEADER_BYTES - 1000)
    assert (await get_raw(site, raw(f"X: {value}\r\nContent-Length: 0"))).headers["X"] == value


async def test_many_headers_are_read(site: Web) -> None:
    """Real sites send more headers than the library's usual 128."""
    headers = "\r\n".join(f"X-{n}: y" for n in range(MAX_HEADERS - 10))
    assert (await get_raw(site, raw(headers, b"hi"))).body == b"hi"


async def test_an_answer_may_belong_to_a_fetch_that_began_earlier(site: Web) -> None:
    """After redirects the last answer is given the first one's beginning; nothing else changes."""
    response = await get_raw(site, raw("Content-Length: 2", b"hi"))
    earlier = response.beginning(7.0)
    assert (earlier.start_s, earlier.end_s, earlier.body) == (7.0, response.end_s, b"hi")


# Connections


async def test_a_connection_is_used_again(site: Web) -> None:
    """Keep-alive: two fetches, one connection, the address known both times."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"Content-Length: 2\r\n\r\nhi")

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    assert [(await fetcher.get(url)).address for _ in range(2)] == ["127.0.0.1"] * 2
    assert site.connections == 1


async def test_a_kept_connection_that_proves_dead_is_replaced_at_once(site: Web) -> None:
    """RFC 9112 section 9.3.1: the server closed it while we wrote; nothing was lost."""
    requests = itertools.count()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            if next(requests) == 1:
                return
            writer.write(OK + b"Content-Length: 2\r\n\r\nhi")

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    assert [(await fetcher.get(url)).body for _ in range(2)] == [b"hi", b"hi"]
    assert site.connections == 2


async def test_a_fresh_connection_that_is_dropped_is_not_tried_again_by_itself(site: Web) -> None:
    """A second request is the frontier's decision: the host's gate must see it."""
    with pytest.raises(ConnectionLost):
        await get_raw(site)
    assert site.connections == 1


async def test_there_is_no_limit_of_connections_of_its_own(site: Web) -> None:
    """How many fetches run at once is decided by gates and workers alone."""
    all_there = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if site.connections == 150:
            all_there.set()
        await all_there.wait()
        await saying(raw("Content-Length: 0"))(reader, writer)

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    answers = await asyncio.gather(*(fetcher.get(url) for _ in range(150)))
    assert {answer.status for answer in answers} == {200}
