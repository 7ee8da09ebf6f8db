"""The fetcher against real servers on loopback: what is sent, what comes back, over which connections."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from anabranch.crawler.fetch.connections import MAX_HEAD_BYTES
from anabranch.crawler.fetch.decoding import CODINGS
from anabranch.crawler.fetch.exchange import MAX_HEADERS
from anabranch.crawler.fetch.options import ACCEPT, SiteOptions, Validators
from anabranch.crawler.fetch.response import Cut
from anabranch.crawler.outcomes.failures import ConnectionLost, HostTakenOver, KeptConnectionClosed
from tests.crawler.fetch.servers import LIMIT_S, OK, Web, get_raw, raw, refused_port, saying

if TYPE_CHECKING:
    from anabranch.crawler.fetch.response import Response


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
    assert headers["Accept-Encoding"] == ", ".join(CODINGS)
    assert headers["Accept-Encoding"].startswith("gzip, deflate")
    assert headers.getall("Host") == [f"127.0.0.1:{port}"]
    assert "Cookie" not in headers


async def test_nothing_is_sent_by_a_worker_whose_lease_may_have_ended(site: Web) -> None:
    """It is asked before a connection is made, and again before the request."""
    asked: list[bool] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        asked.append(True)
        return web.Response(text=request.path)

    port = await site.serve(handler)
    for answers in ([False], [True, False]):
        left = iter(answers)
        fetcher = site.fetcher(may_send=lambda left=left: next(left))
        with pytest.raises(HostTakenOver, match="another worker may crawl this host by now") as failure:
            await fetcher.get(f"http://127.0.0.1:{port}/")
        assert failure.value.end_s
    assert not asked


@pytest.mark.parametrize("target", ["/a%2fb/%7E/?q=%41+b&c='x'", "/%E4%B8%AD", "/a//b/../c;d=e", "/?", "/[x]|y"])
async def test_the_canonical_bytes_are_sent_unchanged(site: Web, target: str) -> None:
    """The server sees the URL that dedup saw."""
    lines: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        await saying(raw("Content-Length: 0"))(reader, writer)

    port = await site.listen(talk)
    await site.fetcher().get(f"http://127.0.0.1:{port}{target}")
    assert lines == [f"GET {target} HTTP/1.1\r\n".encode()]


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
    assert (await get_raw(site, raw("Content-Length: 2", b"hi"))).body.read() == b"hi"


# What comes back


async def test_a_response_holds_status_headers_body_address_and_times(site: Web) -> None:
    """Header names in any case, several values kept; times by the injected clock."""
    response = await get_raw(site, raw("Content-Type: text/html\r\nX: 1\r\nx: 2\r\nContent-Length: 2", b"hi"))
    assert (response.status, response.body.read(), response.cuts) == (200, b"hi", ())
    assert response.headers["content-TYPE"] == "text/html"
    assert response.headers.getall("x") == ["1", "2"]
    assert response.address == "127.0.0.1"
    assert (response.start_s, response.end_s) == (1000.0, 1001.0)


async def test_a_redirect_is_an_answer(site: Web) -> None:
    """It is not followed; its Location is what the server wrote."""

    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=301, headers={"Location": "../b c?x#y"})

    response = await site.fetcher().get(f"http://127.0.0.1:{await site.serve(handler)}/a/")
    assert (response.status, response.location) == (301, "../b c?x#y")


@pytest.mark.parametrize("status", [204, 304, 404, 429, 500])
async def test_every_status_is_an_answer(site: Web, status: int) -> None:
    """Bodies may be empty; errors of the server are answers of the server."""

    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status)

    response = await site.fetcher().get(f"http://127.0.0.1:{await site.serve(handler)}/")
    assert (response.status, response.body.read(), response.cuts) == (status, b"", ())


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("x-unknown", b"hello"),
        ("identity", b"hello"),
        ("gzip", b"hello"),
        ("br", b"hello"),
    ],
)
async def test_a_body_is_kept_as_it_came_and_decoded_when_asked(site: Web, encoding: str, encoded: bytes) -> None:
    """It is kept as it came, and known codings are undone when it is asked for; what is no known coding stays as it is.

    So does text that was never coded.
    """
    headers = f"Content-Encoding: {encoding}\r\nContent-Length: {len(encoded)}"
    response = await get_raw(site, raw(headers, encoded))
    assert response.body.read() == encoded
    assert response.content(100) == (b"hello", False)


@pytest.mark.parametrize("encoded", [b"\0hello", gzip.compress(b"hello", mtime=0)[:11]])
async def test_a_coding_that_is_broken_from_its_start_gives_nothing(site: Web, encoded: bytes) -> None:
    """Its bytes are no text, so they are not taken for the content."""
    response = await get_raw(site, raw("Content-Encoding: gzip", encoded))
    assert response.content(100) == (b"", True)


async def test_a_body_without_length_ends_with_the_connection(site: Web) -> None:
    """HTTP/1.0 style; chunked bodies end with their last chunk."""
    assert (await get_raw(site, raw("X: y", b"hel"), b"lo")).body.read() == b"hello"
    chunked = raw("Transfer-Encoding: chunked", b"2\r\nhe\r\n"), b"3\r\nllo\r\n0\r\n\r\n"
    assert (await get_raw(site, *chunked)).body.read() == b"hello"


async def test_long_headers_are_read(site: Web) -> None:
    """Real sites send policies and cookies longer than the library's usual 8 KiB."""
    value = "x" * (MAX_HEAD_BYTES - 1000)
    assert (await get_raw(site, raw(f"X: {value}\r\nContent-Length: 0"))).headers["X"] == value


async def test_many_headers_are_read(site: Web) -> None:
    """Real sites send more headers than the library's usual 128."""
    headers = "\r\n".join(f"X-{n}: y" for n in range(MAX_HEADERS - 10))
    assert (await get_raw(site, raw(headers, b"hi"))).body.read() == b"hi"


async def test_the_raw_facts_are_those_of_the_wire(site: Web) -> None:
    """Reason, version, and the headers as received, in order and case; the request byte for byte as it was sent."""
    sent: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.0 404 Gone  fishing\r\nb: 1\r\nA: \xff \xe4\r\nB: 2\r\n\r\nhi")

    url = f"http://127.0.0.1:{await site.listen(talk)}/a?b"
    response = await site.fetcher(headers={"X-Own": "1"}).get(url)
    assert (response.url, response.reason, response.version) == (url, "Gone  fishing", "1.0")
    assert response.raw_headers == ((b"b", b"1"), (b"A", b"\xff \xe4"), (b"B", b"2"))
    assert response.headers["a"].encode("utf-8", "surrogateescape") == b"\xff \xe4"
    assert response.request == sent[0]
    assert b"\r\nX-Own: 1\r\n" in response.request


async def test_informational_answers_are_passed_over(site: Web) -> None:
    """100 and 103 come before the answer."""
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    response = await get_raw(site, hints + raw("Content-Length: 2", b"hi"))
    assert (response.status, response.body.read()) == (200, b"hi")
    assert "Link" not in response.headers


async def test_more_headers_than_are_taken_are_cut(site: Web) -> None:
    """The first ones are kept, the body too."""
    headers = "\r\n".join(f"X-{n}: y" for n in range(MAX_HEADERS + 1))
    response = await get_raw(site, raw(headers, b"hi"))
    assert (response.body.read(), response.cuts) == (b"hi", (Cut.HEADERS,))
    assert len(response.raw_headers) == len(response.headers) == MAX_HEADERS
    assert response.raw_headers[-1] == (b"X-%d" % (MAX_HEADERS - 1), b"y")


@pytest.mark.parametrize("hints", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"])
async def test_what_came_of_headers_without_end_is_kept(site: Web, hints: bytes) -> None:
    """The status and the whole lines; no body. The connection is closed."""
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(hints + b"HTTP/1.1 301 Moved\r\nLocation: /x\r\n")
        try:
            while True:
                writer.write(b"Cookie: " + b"x" * 1000 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            over.set()

    response = await site.fetcher().get(f"http://127.0.0.1:{await site.listen(talk)}/")
    assert (response.status, response.reason, response.version) == (301, "Moved", "1.1")
    assert (response.location, response.body.size, response.cuts) == ("/x", 0, (Cut.HEADERS,))
    assert set(response.raw_headers[1:]) == {(b"Cookie", b"x" * 1000)}
    assert sum(len(name) + len(value) for name, value in response.raw_headers) <= MAX_HEAD_BYTES
    await asyncio.wait_for(over.wait(), LIMIT_S)


@pytest.mark.parametrize(
    "flood",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        raw("Transfer-Encoding: chunked", b"2\r\nhi\r\n0\r\n") + b"T: " + b"x" * 100_000 + b"\r\n",
        raw("Transfer-Encoding: chunked", b"2;" + b"x" * 100_000),
    ],
    ids=["informational answers", "trailers", "a chunk extension"],
)
async def test_framing_without_end_is_a_lost_connection(site: Web, flood: bytes) -> None:
    """Bytes that bring neither an answer nor content are bounded like headers."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(flood)
        again = flood * 100 if flood.startswith(b"HTTP/1.1 1") else b"x" * 1000 + b"\r\n" * flood.endswith(b"\n")
        while not writer.transport.is_closing():
            writer.write(b"T: " * again.endswith(b"x\r\n") + again)
            await writer.drain()

    with pytest.raises(ConnectionLost, match="more than 131072 bytes of headers, trailers or chunk extensions"):
        await site.fetcher().get(f"http://127.0.0.1:{await site.listen(talk)}/")


# Asking for what has changed


async def test_a_conditional_get_names_the_version_that_is_known(site: Web) -> None:
    """If-None-Match and If-Modified-Since as they came; 304 is an answer."""
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(status=304)

    date = "Tue, 14 Nov 2023 22:13:20 GMT"
    url = f"http://127.0.0.1:{await site.serve(handler)}/"
    response = await site.fetcher().get(url, conditional=Validators('W/"x"', date))
    assert (response.status, response.body.size) == (304, 0)
    assert (seen[0].headers["If-None-Match"], seen[0].headers["If-Modified-Since"]) == ('W/"x"', date)


@pytest.mark.parametrize("known", [None, Validators(), Validators("\udcff", "a\r\nb: c")])
async def test_a_get_without_a_usable_version_is_unconditional(site: Web, known: Validators | None) -> None:
    """A validator that cannot be sent as it came is left out; it adds nothing to the request."""
    response = await get_with(site, conditional=known)
    assert b"If-" not in response.request
    assert b"b: c" not in response.request


async def get_with(
    site: Web, *, via: str | None = None, conditional: Validators | None = None, **options: Any
) -> Response:
    port = await site.listen(saying(raw("Content-Length: 0")))
    return await site.fetcher(**options).get(f"http://127.0.0.1:{port}/", via=via, conditional=conditional)


@pytest.mark.parametrize(
    ("via", "line"),
    [
        ("http://a.test/x?y", b"\r\nReferer: http://a.test/x?y\r\n"),
        ("http://me:secret@a.test/x#y", b"\r\nReferer: http://a.test/x\r\n"),
    ],
)
async def test_the_page_a_link_was_found_on_is_told_if_the_order_says_so(site: Web, via: str, line: bytes) -> None:
    """Without user and fragment."""
    assert line in (await get_with(site, via=via, referer=True)).request
    assert b"Referer" not in (await get_with(site, via=via)).request


@pytest.mark.parametrize("via", [None, "", "https://a.test/", "http://a.test/\u4e2d"])
async def test_some_pages_are_not_told(site: Web, via: str | None) -> None:
    """There is none, it was a page over TLS, or it could not be sent."""
    assert b"Referer" not in (await get_with(site, via=via, referer=True)).request


# Cookies, sites


async def test_cookies_are_sent_back_if_the_order_says_so(site: Web) -> None:
    """To their host, in later requests; off by default (as above)."""
    port = await site.listen(saying(raw("Set-Cookie: a=b\r\nContent-Length: 0")))
    fetcher = site.fetcher(cookies=True)
    url = f"http://127.0.0.1:{port}/"
    first, second = [await fetcher.get(url) for _ in range(2)]
    assert b"Cookie" not in first.request
    assert b"\r\nCookie: a=b\r\n" in second.request
    assert (fetcher.cookies_for(url), site.fetcher().cookies_for(url)) == ("a=b", None)


async def test_a_cookie_is_sent_back_as_the_bytes_that_came(site: Web) -> None:
    """Whatever their encoding: browsers do so."""
    port = await site.listen(
        saying(b"HTTP/1.1 200 OK\r\nConnection: close\r\nSet-Cookie: a=caf\xe9\xc3\xa0\r\nContent-Length: 0\r\n\r\n")
    )
    fetcher = site.fetcher(cookies=True)
    for _ in range(2):
        response = await fetcher.get(f"http://127.0.0.1:{port}/")
    assert b"\r\nCookie: a=caf\xe9\xc3\xa0\r\n" in response.request


async def test_the_session_that_an_answer_begins_is_hidden_in_it(site: Web) -> None:
    """Applications put a new session into the URLs of its first answer, since they do not know whether cookies work."""
    head = raw("Set-Cookie: sid=0123456789\r\nContent-Location: /?sid=0123456789\r\nContent-Length: 0")
    port = await site.listen(saying(head))
    url = f"http://127.0.0.1:{port}/"
    response = await site.fetcher(cookies=True, redact="all").get(url)
    assert response.secrets == {b"0123456789"}
    assert (await site.fetcher(cookies=True).get(url)).secrets is None


async def test_a_site_may_have_headers_credentials_and_limits_of_its_own(
    site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gets the credentials; the request that is kept and written does not show them."""
    monkeypatch.setenv("SECRET", "pass")
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(body=b"x" * 100)

    port = await site.serve(handler)
    own = SiteOptions(
        surts=(f"http://127.0.0.1:{port}/in/",),
        headers={"User-agent": "other/1"},
        user="me",
        password_env="SECRET",
        max_body_bytes=10,
    )
    fetcher = site.fetcher(own)
    inside = await fetcher.get(f"http://127.0.0.1:{port}/in/x")
    outside = await fetcher.get(f"http://127.0.0.1:{port}/out")
    assert seen[0].headers["Authorization"] == "Basic bWU6cGFzcw=="
    assert seen[0].headers.getall("User-Agent") == ["other/1"]
    assert (inside.body.size, inside.cuts) == (10, (Cut.LENGTH,))
    assert b"Authorization" not in inside.request
    assert "Authorization" not in seen[1].headers
    assert outside.body.size == 100


async def test_a_user_in_the_url_is_told_to_the_server_and_not_shown(site: Web) -> None:
    """The server gets credentials; neither the kept request nor the Host field has them."""
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(raw("Content-Length: 0"))

    port = await site.listen(talk)
    response = await site.fetcher().get(f"http://me:p%20w@127.0.0.1:{port}/x")
    credentials = b"Authorization: Basic bWU6cCB3\r\n"
    assert seen[0].startswith(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port)
    assert credentials in seen[0]
    assert response.request == seen[0].replace(credentials, b"")


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


async def test_a_request_whose_kept_connection_is_closed_is_not_sent_again_by_itself(site: Web) -> None:
    """HTTP allows it (RFC 9112 section 9.3.1), but the server may have read it: the host's gate must see the second one."""
    requests = itertools.count()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            if next(requests) == 1:
                return
            writer.write(OK + b"Content-Length: 2\r\n\r\nhi")

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    assert (await fetcher.get(url)).body.read() == b"hi"
    with pytest.raises(KeptConnectionClosed):
        await fetcher.get(url)
    assert (site.connections, next(requests)) == (1, 2)
    assert (await fetcher.get(url)).body.read() == b"hi"


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
