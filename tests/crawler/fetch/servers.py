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

#: One with an RSA key.
RSA_PEM = """\
-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDZPpTwA3Y7HPZh
5yuh3eAkzlkEKKx7cpPKDtHpqpPKnisRr+c1mJzcV7MbblXImAwN9cw9ictu9ZZm
0tt0DxgtuJcyGcG0Sz6omu6Kk1WrwAgxkAS9tg3i5X2YB/L9pzTpK4O/EXfyB62x
jEE9g+lcQ1dTEGHtkdcyxMXmSmhnGXbCvuthcpYx/PAgFOfOk3Fzfp+iVYSYU7nY
E7tYeOaElritZ5sNO/DPsg7zy36hBbf7wZKZw4mPzZ7Z23uOWL3N56gjswA8y1/N
aRFOaTmW2O/1IBjKEyq9PDFq1xgRu/vlDJJkU6hyDQl7j10IPsKogLq48xCPUCHU
eHTxr5IvAgMBAAECggEAKdrTUhywojn1xC4IK4L2ZND2uITnmk8cZzEMw1Kwb7ii
fqFfz+Urz437/Xx3/ZJBvEzPgUmzjpi1VfEpA8bGt0RZqPbqaYSXuV9ENyGkv1bb
nUTsjOpu6XiihnB9od4dpRDTrLO+YryU++CUTzhDdRmqUOAWpfFTvz3HDRPn4njc
F9fFWUKmHsJhPUxZNTvtnWOIIjFWYq02W0/zrK2gAI/x6dnbh/6CR72R089X12kN
Ux1rRzBx7xX3vCkWtHCFK3hS+izMDjZsxipLZz3+GVKZXlLUnCrhiOCipGmY1Gk1
N5sK3mLy0/p3WhG5S7dU3+L9Eih6T0+8M1t78ghdqQKBgQDs8OTgP4NcZTLpZRuD
SGq+v7w9cEQA58JLwMa1NcNwvqFPzGztMTexKLlxndOWMQO5/d+BuigSEhEd1R6k
0quhmEnC32KR1Smm9dVhq38q09Zggf8juoWNNijxzUEbB8y4lFW9t73lajqiltty
Gf/hlW1vyJ+8tvPIh9KThaRX2QKBgQDquBhnqovXTocZYSzcNGNLm8LW3MsJnWBA
tylcXzPrquSP0hy+Q8hFKXPqHnZuDbe16U8v6XoCxLXY6tmsHWgKs8wXwuT67ewh
gk9MN9MmfK7KgwfBy8EeklWbimasF2gOxuF1hp/F85yv7sSJIEqbOSyte0cpzKlI
CJTnhkC9RwKBgQCKL9xsZN5p7qOIt20aXgvTf+N7OZSPqpsIrz+0w8xeXu+ZqLIG
i+PdMNEm0FNsjt2LheLqt/VSxLKy4W7j1fI/Zp/uRXYpc1a9hzaRpgGeqrmmw2pY
HhpxxxqOG5VS/HOLWwe+hAD+YbwcwzrtCvjPSeTvguSWnWUEmSJY42J70QKBgF6o
i78S+n6EPtuvYuYTgo/1ayg3tvJTs4Ol2lpUUp4SN0cBF3Jr55Js20BptJ1Bjvsf
8j2CTSBcsHGglNRir5jRVdenU60W0onZAZ3dTZxR4DPvj+tJ/sIThc7KjAmPDvoW
nspE1p6AVoplIoGisjPTZP85nkNvND3GqDaO4AD1AoGAG6c0+A+vbZM6pZdyFEI4
mWbAKcKPm9pUuADcwNMsSvMx6cuPKc6m8B136rhWUTAxlvcda05t6aE++jzZv4cn
Afcl0tCFGJPvO00M8IJseSQmAF6TlCRb1f93b+JehanIGbWstILPEP8B0zpk5Vdo
ojcBeSsnn+qbIgdqSiOBhDM=
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIDHDCCAgSgAwIBAgIUM8tOhf25y2z9EFQBtbgJqgciU4UwDQYJKoZIhvcNAQEL
BQAwFDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEyODIyMTMzMVoYDzIxMjYx
MTA0MjIxMzMxWjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwggEiMA0GCSqGSIb3DQEB
AQUAA4IBDwAwggEKAoIBAQDZPpTwA3Y7HPZh5yuh3eAkzlkEKKx7cpPKDtHpqpPK
nisRr+c1mJzcV7MbblXImAwN9cw9ictu9ZZm0tt0DxgtuJcyGcG0Sz6omu6Kk1Wr
wAgxkAS9tg3i5X2YB/L9pzTpK4O/EXfyB62xjEE9g+lcQ1dTEGHtkdcyxMXmSmhn
GXbCvuthcpYx/PAgFOfOk3Fzfp+iVYSYU7nYE7tYeOaElritZ5sNO/DPsg7zy36h
Bbf7wZKZw4mPzZ7Z23uOWL3N56gjswA8y1/NaRFOaTmW2O/1IBjKEyq9PDFq1xgR
u/vlDJJkU6hyDQl7j10IPsKogLq48xCPUCHUeHTxr5IvAgMBAAGjZDBiMB0GA1Ud
DgQWBBQgw7JkB+o/Xaj9EHk6lJjQQcy+gDAfBgNVHSMEGDAWgBQgw7JkB+o/Xaj9
EHk6lJjQQcy+gDAPBgNVHRMBAf8EBTADAQH/MA8GA1UdEQQIMAaHBH8AAAEwDQYJ
KoZIhvcNAQELBQADggEBAEbCUxmKtBXANCPTCFMHDHI5Ay2WmOKXD8bOP3hJnXuZ
ExqCkz7qDtjoRIsOrmAIm3EgfH6g8eBGNeYhEd+vW3ca3uhqFx/tZ5eejU5usvaE
KtM7omaJW4HYjc9IfAm7BicejJzrDwo4+1472gWcw3srmH9GaDHnsu4pO/riNDyv
j2x032ihYQRMMRWY9y38OcIQmrjEpVMLdi6AK35nSZRlD+EYYYtZO74xcLprPwNB
+Svpq+TaGMEOtsIMYeWrOPsZ+JkNBGM8C/AFwvDkegAFzw3hyyCo70ObM2xQ7jIR
AnvP263hce6n4KiqDVcZuelECzkStMFvMLYuCNaDzfw=
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
        may_send: Callable[[], bool] | None = None,
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
