"""Tests of the common parts of requests to one host, and of the request line and Host of a URL."""

from __future__ import annotations

import aiohttp
import pytest

from anabranch.crawler.fetch.proxy import Proxy, parse_proxy
from anabranch.crawler.fetch.requests import HeaderFields, Origins, without_credentials

HTTP, HTTPS, SOCKS = (parse_proxy(f"{scheme}://p") for scheme in ("http", "https", "socks5"))


def request(origins: Origins, url: str, proxy: Proxy | None = None) -> bytes:
    """Return the request that is sent, without fields."""
    origin, path = origins.of(url, proxy)
    return origin.request(path, b"")


@pytest.mark.parametrize(
    ("url", "head"),
    [
        ("http://a.test/x?y", "GET /x?y HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ("http://a.test:8080/x?", "GET /x? HTTP/1.1\r\nHost: a.test:8080\r\n\r\n"),
        ("https://a.test/x??", "GET /x?? HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ("http://a.test/x#y", "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ("http://a.test?x", "GET /?x HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ("http://a.test.", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ("http://me:secret@[::1]:81/", "GET / HTTP/1.1\r\nHost: [::1]:81\r\n\r\n"),
    ],
)
async def test_a_request_names_the_path_and_the_host(url: str, head: str) -> None:
    """Neither fragment nor user are sent; a query without content is none; the scheme's own port is not named."""
    assert request(Origins({}), url) == head.encode()


@pytest.mark.parametrize(
    "url",
    [
        "http://a.test/\r\nX: y",
        "http://a.test/ HTTP/1.1",
        "http://a.test/?\x7f",
        "http://a\n.test/",
        "http://a.test/#\r\n",
    ],
)
async def test_a_url_that_would_end_the_requests_line_is_refused(url: str) -> None:
    """A canonical URL has no such characters; one that has would put a field, or a second request, into ours."""
    with pytest.raises(ValueError, match="test"):
        Origins({}).of(url, None)


@pytest.mark.parametrize("url", ["ftp://a.test/", "a.test", "http:///x", "http://", "//a.test/", ""])
async def test_what_has_no_host_is_refused(url: str) -> None:
    """And whatever is not of the web."""
    with pytest.raises(aiohttp.InvalidURL):
        Origins({}).of(url, None)


async def test_only_a_proxy_that_forwards_is_told_the_whole_url() -> None:
    """Through CONNECT and SOCKS one speaks with the host itself."""
    origins = Origins({})
    for proxy, url in ((HTTP, "http://a.test/x"), (HTTPS, "http://a.test/x")):
        assert request(origins, url, proxy).startswith(b"GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n")
    for proxy, url in ((HTTP, "https://a.test/x"), (SOCKS, "http://a.test/x")):
        assert request(origins, url, proxy).startswith(b"GET /x HTTP/1.1\r\nHost: a.test\r\n")


async def test_connections_are_shared_by_the_pages_of_a_host_on_one_way() -> None:
    """Another port, TLS or another proxy is another key."""
    origins = Origins({})
    same = [origins.of(url, None)[0].key for url in ("http://a.test/", "http://a.test/x", "http://a.test:80/")]
    assert len(set(same)) == 1
    others = {
        origins.of(url, proxy)[0].key
        for url, proxy in (
            ("http://a.test/", HTTP),
            ("http://a.test/", HTTPS),
            ("https://a.test/", None),
            ("http://a.test:81/", None),
            ("http://b.test/", None),
        )
    }
    assert len(others | set(same)) == 6


USUAL = {"User-Agent": "a", "Accept": "b"}


def test_a_requests_own_fields_win_over_the_usual_ones() -> None:
    """By name in any case: no field is sent twice."""
    fields = HeaderFields(USUAL)
    assert fields.encode({}) == b"User-Agent: a\r\nAccept: b\r\n"
    assert fields.encode({"user-agent": "c", "X": "y"}) == b"user-agent: c\r\nAccept: b\r\nX: y\r\n"
    assert fields.encode({}) == b"User-Agent: a\r\nAccept: b\r\n"


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nX: y", "a\0", "\x7f"])
def test_a_value_that_would_end_its_field_is_refused(value: str) -> None:
    """Nothing is put into our request."""
    with pytest.raises(ValueError, match="cannot be sent"):
        HeaderFields(USUAL).encode({"X": value})
    with pytest.raises(ValueError, match="cannot be sent"):
        HeaderFields({"X": value})


def test_what_is_shown_of_a_request_opens_no_doors() -> None:
    """Every field of credentials is left out, and nothing else."""
    start, rest = b"GET /authorization:x HTTP/1.1\r\nHost: a\r\n", b"X-Authorization: y\r\n\r\n"
    secrets = b"authorization: Basic x\r\nProxy-Authorization: Basic y\r\n"
    assert without_credentials(start + secrets + rest) == start + rest
