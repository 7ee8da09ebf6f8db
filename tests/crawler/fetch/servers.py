"""Servers on loopback that a fetcher meets: polite ones (aiohttp.web) and nasty ones (raw sockets)."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from anabranch.crawler.fetch.connection_limits import ConnectionLimits
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.fetch.options import FetchOptions
from anabranch.crawler.fetch.response import Response, Scratch
from tests.patience import HANG_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anabranch.crawler.fetch.options import SiteOptions

    Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\n"
MAX_BODY = 1 << 16
LIMIT_S = HANG_S  # no test waits for this; it ends a test that would hang

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


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request."""
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(OK + b"Content-Length: 2\r\n\r\nhi")


async def is_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Accept, read, and say nothing."""
    await reader.read(-1)


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

    def fetcher(
        self,
        *sites: SiteOptions,
        scratch: Scratch | None = None,
        connections: ConnectionLimits | None = None,
        may_send: Callable[[], bool] = lambda: True,
        **options: Any,
    ) -> Fetcher:
        """A fetcher that may fetch from here; `options` are those of `FetchOptions`."""
        resolver = Resolver(["127.0.0.1:9"], self.hosts, clock=Clock(), timeout_s=0.3)
        usual = {"allow_private": True, "timeout_s": LIMIT_S, "max_body_bytes": MAX_BODY}
        fetcher = Fetcher(
            FetchOptions(**{"user_agent": "anabranch/0 (+https://x.test)", **usual, **options}),
            resolver=resolver,
            scratch=scratch or Scratch(None),
            clock=Clock(),
            sites=sites,
            connections=connections or ConnectionLimits(),
            may_send=may_send,
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


async def get_raw(site: Web, *parts: bytes, keep_broken: bool = False, **options: Any) -> Response:
    port = await site.listen(saying(*parts))
    return await site.fetcher(**options).get(f"http://127.0.0.1:{port}/", keep_broken=keep_broken)


async def refused_port() -> int:
    """A port on which nothing listens."""
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port
