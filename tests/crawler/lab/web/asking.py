"""A plain HTTP client of the lab's server, and a web by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from anabranch.crawler.lab.web.model import WebHost, WebPage
from anabranch.crawler.lab.web.server import Server


class HandWeb:
    """Pages as a test writes them, at `a.test` and `b.test`; the one has a Crawl-delay."""

    seeds = ("http://a.test/",)
    sites: Sequence[WebHost] = (WebHost("a.test", 9, 0.0, 1e9, None), WebHost("b.test", 1, 0.0, 1e9, 1.5))

    def __init__(self, **pages: WebPage) -> None:
        self.urls = len(pages)
        self.pages = {f"http://a.test/{name}": page for name, page in pages.items()}

    def page(self, url: str) -> WebPage | None:
        """One of a.test's pages, if the test has no others."""
        return self.pages.get(url)


def page(size: int = 1000, latency_s: float = 0.0, transfer_s: float = 0.0, *links: str, status: int = 200) -> WebPage:
    """An answer without embeds."""
    return WebPage(status, "text/html", size, latency_s, transfer_s, links, ())


class Reply(NamedTuple):
    """An answer as it was read."""

    status: int
    fields: dict[str, str]
    body: bytes


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, target: str, method: str = "GET", fields: str = "Host: a.test\r\n", version: str = "1.1") -> None:
        """A request without a body."""
        self.writer.write(f"{method} {target} HTTP/{version}\r\n{fields}\r\n".encode())

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and header fields of the next answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        return int(first.split()[1]), dict(line.split(": ", 1) for line in lines)

    async def reply(self, *, has_body: bool = True) -> Reply:
        """The next answer."""
        status, fields = await self.head()
        return Reply(status, fields, await self.reader.readexactly(int(fields["Content-Length"]) if has_body else 0))

    async def get(self, target: str, **how: str) -> Reply:
        """Ask, and read the answer."""
        self.send(target, **how)
        return await self.reply(has_body=how.get("method") != "HEAD")

    async def is_closed(self) -> bool:
        """The server has closed the connection, and sent nothing more."""
        return await self.reader.read() == b""


@asynccontextmanager
async def client_of(port: int) -> AsyncIterator[Client]:
    """A connection, closed in the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def served(web: HandWeb) -> AsyncIterator[tuple[Server, int]]:
    """The server in this loop, and its port."""
    server = Server(web)
    port = await server.listen(0)
    try:
        yield server, port
    finally:
        await server.close()
