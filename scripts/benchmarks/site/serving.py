"""A server of ready answers: `python -m scripts.benchmarks.site.serving SITE`, SITE as JSON (`Site.text`).

It listens at the addresses of the site's hosts, on one port, which it prints, and ends when its standard input does. An answer
is one look-up and one write of bytes that were made beforehand (of a site too large for that: that are made now), so that a
crawler on another core waits for itself and not for the server; robots.txt is 404. It counts what it is asked for: a line on
standard input has it print what came since the last such line, as a `Tally` in JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict
from typing import Protocol

from scripts.benchmarks.site import pages
from scripts.benchmarks.site.tally import Counting


class Answers(Protocol):
    """The answers, by path."""

    def get(self, path: bytes, otherwise: bytes, /) -> bytes: ...


class Connection(asyncio.Protocol):
    """One connection, kept alive. Requests have no bodies, so a request ends at its empty line."""

    def __init__(self, answers: Answers, counting: Counting) -> None:
        self._answers = answers
        self._counting = counting
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer the complete requests that have come."""
        *whole, self._unread = (self._unread + data).split(b"\r\n\r\n")
        for request in whole:
            path = request.split(b" ", 2)[1]
            self._counting.add(path, time.time())
            self._transport.write(self._answers.get(path, _NOT_FOUND))


def answers(site: pages.Site, origins: list[str]) -> dict[bytes, bytes]:
    """The answers by path. A page is the same on all hosts; its links lead to the right ones."""
    return {pages.path(number).encode(): _answer(pages.html(number, site, origins)) for number in range(site.pages)}


class Computed:
    """The answers of a site that is too large for memory: each page is made on request."""

    def __init__(self, site: pages.Site, origins: list[str]) -> None:
        self._site = site
        self._origins = origins

    def get(self, path: bytes, otherwise: bytes, /) -> bytes:
        number = pages.number_at(path.decode())
        if number is None or number >= self._site.pages:
            return otherwise
        return _answer(pages.html(number, self._site, self._origins))


def _answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body


_NOT_FOUND = _answer(b"not here", b"404 Not Found")
#: Pages that are made beforehand; beyond that they take too much memory and time.
_READY = 50_000


async def serve(site: pages.Site) -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    counting = Counting()
    known: list[Answers] = []  # once the port is known
    places = pages.addresses(site)

    def connection() -> Connection:
        return Connection(known[0], counting)

    first = await loop.create_server(connection, places[0], 0, backlog=1024)
    port = first.sockets[0].getsockname()[1]
    if places[1:]:
        await loop.create_server(connection, places[1:], port, backlog=1024)
    origins = pages.origins(site, port)
    known.append(answers(site, origins) if site.pages <= _READY else Computed(site, origins))
    print(port, flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(asdict(counting.take())), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(pages.Site.read(sys.argv[1])))
