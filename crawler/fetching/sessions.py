"""aiohttp's sessions, one for each way out: straight or through an HTTP proxy, and each SOCKS proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from crawler.fetching.answers import Answer
from crawler.fetching.decoding import CODINGS
from crawler.fetching.options import ACCEPT, FetchOptions
from crawler.network.connector import Connector, Network
from crawler.network.idle import IdleConnections
from crawler.network.socks import SocksConnector, SocksProxy
from crawler.network.wire import MAX_HEAD_BYTES, MAX_HEADER_LINES

if TYPE_CHECKING:
    from crawler.fetching.proxies import Proxy
    from crawler.network.descriptors import Connections
    from crawler.network.dns import Resolver

#: How much of a body waits in a connection before the server is made to wait.
READ_BUFFER_BYTES = 64 * 1024


class Sessions:
    """Opens a session when it is first needed. Connections that wait are bounded together, busy ones in each session."""

    def __init__(self, options: FetchOptions, resolver: Resolver, connections: Connections) -> None:
        self._options = options
        self._resolver = resolver
        self._busy = connections.busy
        self._idle = IdleConnections(connections.idle)
        self._open: dict[Proxy | None, aiohttp.ClientSession] = {}

    def of(self, proxy: Proxy | None) -> aiohttp.ClientSession:
        """The session of a SOCKS proxy, or the one of all else: connections must not be mixed up."""
        key = proxy if proxy is not None and proxy.is_socks else None
        session = self._open.get(key)
        if session is None:
            session = self._open[key] = self._session(key)
        return session

    async def close(self) -> None:
        """Close all connections."""
        for session in self._open.values():
            await session.close()

    def _session(self, socks: Proxy | None) -> aiohttp.ClientSession:
        options = self._options
        codings = [name for name in options.accept_encoding if name in CODINGS]
        session = aiohttp.ClientSession(
            connector=self._connector(socks),
            cookie_jar=aiohttp.DummyCookieJar(),  # `Cookies` is the jar
            headers={
                "User-Agent": options.user_agent,
                "Accept": ACCEPT,
                "Accept-Encoding": ", ".join(codings) or "identity",
            },
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=options.connect_timeout_s, sock_read=options.read_timeout_s
            ),
            auto_decompress=False,
            trust_env=False,
            response_class=Answer,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=2 * MAX_HEAD_BYTES,  # the wire counts
            max_field_size=2 * MAX_HEAD_BYTES,
            max_headers=MAX_HEADER_LINES,
        )
        # aiohttp repeats a GET after any disconnect, a fresh connection's too: a fetch that the host's gate never saw.
        session._retry_connection = False  # noqa: SLF001 - `Exchange` tries again where that is right
        return session

    def _connector(self, socks: Proxy | None) -> Connector:
        options = self._options
        network = Network(
            allow_private=options.allow_private,
            tls_verify=options.tls_verify,
            ipv4=options.ipv4,
            ipv6=options.ipv6,
            max_busy=self._busy,
        )
        if socks is None:
            return Connector(self._resolver, network, self._idle)
        proxy = SocksProxy(socks.host, socks.port, socks.user, socks.password)
        return SocksConnector(self._resolver, network, self._idle, proxy)
