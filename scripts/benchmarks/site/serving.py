"""A server of ready answers: `python -m scripts.benchmarks.site.serving PAGES HOSTS LINKS`.

It serves PAGES pages of LINKS links on HOSTS addresses 127.0.1.1, 127.0.1.2 … of one port, which it prints when it listens,
and ends when its standard input does. An answer is one look-up and one write of bytes that were made beforehand, so that a
crawler on another core waits for itself and not for the server; robots.txt is 404.
"""

from __future__ import annotations

import asyncio
import sys

from scripts.benchmarks.site import pages


def addresses(hosts: int) -> list[str]:
    """That many addresses of loopback, 250 a subnet."""
    return [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(hosts)]


class Connection(asyncio.Protocol):
    """One connection, kept alive. Requests have no bodies, so a request ends at its empty line."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer the whole requests of what has come."""
        *whole, self._unread = (self._unread + data).split(b"\r\n\r\n")
        for request in whole:
            self._transport.write(self._answers.get(request.split(b" ", 2)[1], _NOT_FOUND))


def answers(site: pages.Site, origins: list[str]) -> dict[bytes, bytes]:
    """The answers by path. A page is the same whatever host it is asked of; links lead to the right ones."""
    return {pages.path(number).encode(): _answer(pages.html(number, site, origins)) for number in range(site.pages)}


def _answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body


_NOT_FOUND = _answer(b"not here", b"404 Not Found")


async def serve(site: pages.Site) -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    known: dict[bytes, bytes] = {}
    places = addresses(site.hosts)
    first = await loop.create_server(lambda: Connection(known), places[0], 0, backlog=1024)
    port = first.sockets[0].getsockname()[1]
    if places[1:]:
        await loop.create_server(lambda: Connection(known), places[1:], port, backlog=1024)
    known |= answers(site, [f"http://{place}:{port}" for place in places])
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    _pages, _hosts, _links = map(int, sys.argv[1:])
    asyncio.run(serve(pages.Site(pages=_pages, hosts=_hosts, links=_links)))
