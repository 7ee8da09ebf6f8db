"""What all URLs of a scheme, host and port have in common: whom to connect to, and how their requests begin.

A site's pages share it, so it is made once; aiohttp's own request object makes it, which knows what a host is and what a proxy
must be told, and is what its connector makes connections for.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.client_reqrep import ConnectionKey

    from anabranch.crawler.fetching.proxies import Proxy

#: Origins that are remembered: some 8 MB.
MAX_ORIGINS = 4096

#: Scheme and authority; path and query; the fragment is not sent. `http:///x` has no host, so its path is not taken for one.
#: None of it may have what would end the request's line, or its target.
_URL = re.compile(
    r"(https?://[^/?#\x00-\x20\x7f]*)([^#\x00-\x20\x7f]*)(?:#[^\x00-\x20\x7f]*)?", re.IGNORECASE | re.ASCII
)


class Origin(NamedTuple):
    """Scheme, host and port, as the way there has them."""

    key: ConnectionKey  #: connections with the same key are as good as each other
    start: bytes  #: of the request: the method, and behind a forwarding proxy the origin
    host: bytes  #: of the request: the version and the Host field
    authorization: str  #: what the URL's user and password are for the server; empty without them
    connecting: Callable[[], aiohttp.ClientRequest]  #: makes what aiohttp's connector makes a connection for

    def request(self, path: bytes, fields: bytes) -> bytes:
        """The whole request for path and query, with these fields."""
        return b"".join((self.start, path, self.host, fields, b"\r\n"))


class Origins:
    """The origins of URLs. A look-up of one that was asked for lately costs 1 µs, of another 50 µs."""

    def __init__(self, usual: Mapping[str, str]) -> None:
        """`usual` are the fields of all requests; a proxy that is to connect is told them too."""
        self._usual = usual
        self._origin = lru_cache(MAX_ORIGINS)(self._made)

    def of(self, url: str, proxy: Proxy | None) -> tuple[Origin, bytes]:
        """A canonical URL's origin, with the proxy on the way there, and its path and query.

        Raises: aiohttp.InvalidURL, ValueError.
        """
        match = _URL.fullmatch(url)
        if match is None:
            raise aiohttp.InvalidURL(url)
        start, path = match.groups()
        if not path.startswith("/"):
            path = f"/{path}"
        if path.endswith("?") and path.count("?") == 1:
            path = path[:-1]  # a query without content is none
        return self._origin(start, proxy), path.encode()

    def _made(self, start: str, proxy: Proxy | None) -> Origin:
        """Raises: aiohttp.InvalidURL, ValueError."""
        url = URL(f"{start}/", encoded=True)
        request, origin = self._connecting(url, proxy), url.with_user(None)
        is_forwarded = request.proxy is not None and not request.is_ssl()
        return Origin(
            key=request.connection_key,
            start=f"GET {str(origin).removesuffix('/') if is_forwarded else ''}".encode(),
            host=f" HTTP/1.1\r\nHost: {request.headers['Host']}\r\n".encode(),
            authorization=request.headers.get("Authorization", ""),
            connecting=partial(self._connecting, origin, proxy),
        )

    def _connecting(self, origin: URL, proxy: Proxy | None) -> aiohttp.ClientRequest:
        """A request for aiohttp's connector to make one connection for: it leaves its marks on it. In a running loop."""
        ways: dict[str, Any] = {}
        if proxy is not None and not proxy.is_socks:
            ways = {"proxy": URL(proxy.url), "proxy_headers": {**self._usual, **proxy.headers()}}
        return aiohttp.ClientRequest("GET", origin, loop=asyncio.get_running_loop(), **ways)
