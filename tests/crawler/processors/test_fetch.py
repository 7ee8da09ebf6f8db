"""The fetcher against real servers on loopback: polite ones (aiohttp.web) and nasty ones (raw sockets)."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import ssl
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.client_reqrep import ClientRequest
from aiohttp.test_utils import TestServer

from crawler import connector
from crawler.dns import Address, Resolver, parse_address
from crawler.failures import (
    AddressRefused,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    NameNotFound,
    NameTimeout,
    Unfetchable,
)
from crawler.processors.fetch import ACCEPT, MAX_HEADER_BYTES, MAX_HEADERS, Fetcher, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\n"
MAX_BODY = 1 << 16
LIMIT_S = 5.0  # no test waits for this; it ends a test that would hang

#: A self-signed certificate for localhost and a.test, and its key. It protects nothing.
PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgY2sU73xaWzGw3PYA
/HgsmMglU+k/+rS4vrzcwJPhvmehRANCAAQqiPiHLvHpm+saN19AfJy1hjx+yPb6
Xz16FxQtIZGrCjjuXg6erMdtjZsXwLx4vennrdseOVtPL2YLIMAxjX9A
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBnjCCAUOgAwIBAgIUPfuumxTdH6A1gHZtCnaq88pIajEwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTA4NDYyM1oYDzIxMjYxMDI4
MDg0NjIzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQqiPiHLvHpm+saN19AfJy1hjx+yPb6Xz16FxQtIZGrCjjuXg6erMdt
jZsXwLx4vennrdseOVtPL2YLIMAxjX9Ao3EwbzAdBgNVHQ4EFgQUyq5bu8M2RV4c
nOe9pzgnmpq5xBQwHwYDVR0jBBgwFoAUyq5bu8M2RV4cnOe9pzgnmpq5xBQwDwYD
VR0TAQH/BAUwAwEB/zAcBgNVHREEFTATgglsb2NhbGhvc3SCBmEudGVzdDAKBggq
hkjOPQQDAgNJADBGAiEA7QJJsRfV4t12ZyozfhrZPTntZYLjlE1YdUYcQeKCERYC
IQDb9l766qDBVZ+W5gsynOdS5850R4I+jwVhYDWSsj5DzA==
-----END CERTIFICATE-----
"""


class Clock:
    """Epoch seconds; each look moves it by one."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1000)

    def __call__(self) -> float:
        return float(next(self._ticks))


class Web:
    """A fetcher whose names all lead to servers of this test, and those servers."""

    def __init__(self) -> None:
        self.hosts: dict[str, str] = {}
        self.connections = 0
        self._closers: list[Callable[[], Awaitable[object]]] = []

    def fetcher(self, *, allow_private: bool = True, timeout_s: float = LIMIT_S) -> Fetcher:
        resolver = Resolver(["127.0.0.1:9"], self.hosts, clock=Clock(), timeout_s=0.3)
        fetcher = Fetcher(
            user_agent="anabranch/0 (+https://x.test)",
            resolver=resolver,
            timeout_s=timeout_s,
            max_body_bytes=MAX_BODY,
            allow_private=allow_private,
            clock=Clock(),
        )
        self._closers[:0] = [fetcher.close, resolver.close]  # before the servers, which wait for their clients
        return fetcher

    async def serve(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> int:
        """An aiohttp server that answers each path with the handler; its port."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app, host="127.0.0.1")
        await server.start_server()
        self._closers.append(server.close)
        assert server.port is not None
        return server.port

    async def listen(self, talk: Talk, tls: ssl.SSLContext | None = None) -> int:
        """A raw server: `talk` says what goes over each connection, which then is closed; its port."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                await talk(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, backlog=256)

        async def close() -> None:
            server.close()
            await server.wait_closed()

        self._closers.append(close)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        for close in self._closers:
            await asyncio.wait_for(close(), LIMIT_S)


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    """Servers and fetchers, closed at the end; no task may be left then."""
    before = asyncio.all_tasks()
    site = Web()
    yield site
    await site.close()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:  # the servers' own connection tasks end with their sockets
        await asyncio.wait(left, timeout=LIMIT_S)
    assert not [task for task in left if not task.done()]


def saying(*parts: bytes) -> Talk:
    """Read one request, write the parts in packets of their own, close."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    return talk


def raw(headers: str, body: bytes = b"") -> bytes:
    return OK + headers.encode() + b"\r\nConnection: close\r\n\r\n" + body


async def get_raw(site: Web, *parts: bytes) -> Response:
    port = await site.listen(saying(*parts))
    return await site.fetcher().get(f"http://127.0.0.1:{port}/")


async def refused_port() -> int:
    """A port on which nothing listens."""
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


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


# Limits


@pytest.mark.parametrize(("size", "truncated"), [(MAX_BODY - 1, False), (MAX_BODY, False), (MAX_BODY + 1, True)])
async def test_a_body_is_cut_at_the_limit(site: Web, size: int, truncated: bool) -> None:
    """What was read until then is returned and marked; a body of exactly the limit is whole."""
    response = await get_raw(site, raw(f"Content-Length: {size}", b"x" * size))
    assert (len(response.body), response.truncated) == (min(size, MAX_BODY), truncated)


async def test_the_rest_of_a_cut_body_is_never_read(site: Web) -> None:
    """The connection of an endless body is closed."""
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw("Content-Type: text/plain"))
        try:
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
        except ConnectionError:
            closed.set()

    response = await site.fetcher().get(f"http://127.0.0.1:{await site.listen(talk)}/")
    assert (len(response.body), response.truncated) == (MAX_BODY, True)
    await asyncio.wait_for(closed.wait(), LIMIT_S)


async def test_a_decompression_bomb_costs_no_more_than_the_limit(site: Web) -> None:
    """64 MiB of zeros in 64 KiB: cut after decoding, never decoded as a whole."""
    bomb = gzip.compress(bytes(64 << 20))
    port = await site.listen(saying(raw("Content-Encoding: gzip", bomb)))
    fetcher = site.fetcher()
    tracemalloc.start()
    response = await fetcher.get(f"http://127.0.0.1:{port}/")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (response.body, response.truncated) == (bytes(MAX_BODY), True)
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (raw("Content-Length: 10", b"half"),),
        (raw("Content-Length: 10"), b"x", b"y"),
        (b"HTTP/1.1 2",),
    ],
    ids=["silence", "in the body", "byte by byte", "in the status line"],
)
async def test_the_time_is_for_the_whole_fetch(site: Web, parts: tuple[bytes, ...]) -> None:
    """However far the answer came: after the time it is over, and the connection too."""
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(*parts)(reader, writer)
        await reader.read()
        over.set()

    port = await site.listen(talk)
    with pytest.raises(FetchTimeout, match=r"^not done within 0\.3 s$"):
        await site.fetcher(timeout_s=0.3).get(f"http://127.0.0.1:{port}/")
    await asyncio.wait_for(over.wait(), LIMIT_S)


async def test_a_cancelled_fetch_is_cancelled(site: Web) -> None:
    """CancelledError is no failure of the site; the connection is closed."""
    asked, over = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        over.set()

    port = await site.listen(talk)
    task = asyncio.create_task(site.fetcher().get(f"http://127.0.0.1:{port}/"))
    await asyncio.wait_for(asked.wait(), LIMIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(over.wait(), LIMIT_S)


# Failures


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (b"H",),
        (b"<html>no HTTP at all",),
        (b"HTTP/1.1 042 Low\r\nConnection: close\r\n\r\n",),
        (raw("Content-Length: 10", b"half"),),
        (raw("Content-Length: 10"), b"half"),
        (raw("Content-Length: ten"),),
        (raw("Transfer-Encoding: chunked", b"ZZ\r\n"),),
        (raw("Transfer-Encoding: chunked", b"5\r\nhello\r\n"), b"ZZ\r\n"),
        (raw("Transfer-Encoding: chunked", b"5\r\nhello\r\n"),),
        (raw("Content-Encoding: gzip\r\nContent-Length: 5", b"hello"),),
        (raw("Content-Encoding: gzip\r\nContent-Length: 50000"), b"x" * 25_000, b"x" * 25_000),
        (raw("X: " + "x" * (MAX_HEADER_BYTES + 1)),),
        (raw("\r\n".join(f"X-{n}: y" for n in range(MAX_HEADERS + 1))),),
    ],
)
async def test_a_broken_answer_is_a_lost_connection(site: Web, parts: tuple[bytes, ...]) -> None:
    """Closed too early, no HTTP, bad lengths, chunks, codings, or endless headers; one line says what."""
    with pytest.raises(ConnectionLost) as caught:
        await get_raw(site, *parts)
    message = str(caught.value)
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
    with pytest.raises(ConnectFailed, match="Cannot connect to host 127") as caught:
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
    """A self-signed certificate is a failed connect."""
    pem = tmp_path / "server.pem"
    pem.write_text(PEM)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    port = await site.listen(saying(raw("Content-Length: 0")), tls)
    site.hosts["a.test"] = "127.0.0.1"
    with pytest.raises(ConnectFailed, match="certificate verify failed"):
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
        user_agent="x",
        resolver=resolver,
        timeout_s=LIMIT_S,
        max_body_bytes=MAX_BODY,
        allow_private=False,
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


@pytest.fixture
def one_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 counts as public here, so that there is something to connect to."""
    monkeypatch.setattr(connector, "is_public", lambda address: address == "127.0.0.1")


@pytest.mark.usefixtures("one_public")
async def test_of_a_hosts_addresses_only_the_public_ones_are_dialled(site: Web) -> None:
    """A private address among public ones is passed over."""
    port = await site.listen(saying(raw("Content-Length: 2", b"hi")))
    response = await get_from(Fixed(f"10.0.0.1:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"))
    assert (response.body, response.address) == (b"hi", "127.0.0.1")


@pytest.mark.usefixtures("one_public")
async def test_a_host_with_a_public_address_that_is_down_may_come_back() -> None:
    """ConnectFailed, not the final AddressRefused, whatever its other addresses are."""
    port = await refused_port()
    with pytest.raises(ConnectFailed):
        await get_from(Fixed(f"127.0.0.1:{port}", "10.0.0.1", "::1"))
