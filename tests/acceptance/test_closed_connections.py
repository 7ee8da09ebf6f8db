"""Servers that offer to keep a connection and then close it on the next request, or send what belongs to the last one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise

import pytest

from tests.acceptance.command import anabranch, crawl_log, write_order

DELAY_S = 0.2
PAGES = [f"/{number}" for number in range(3)]
INDEX = b"".join(b'<a href="%s">x</a>' % path.encode() for path in PAGES)
ROBOTS, RULES = "/robots.txt", "/rules.txt"


class Closing:
    """Answers the first request of each connection; on the second one sends `late` bytes, or aborts the connection."""

    def __init__(self, *, redirects_robots: bool, late: bytes) -> None:
        self.requests: list[tuple[float, str, bool]] = []  #: when it came, its path, whether it was answered
        self._redirects_robots = redirects_robots
        self._late = late

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(self._answer_to(await self._request(reader, is_answered=True)))
            path = await self._request(reader, is_answered=False)
            if self._late:
                writer.write(self._late + self._answer_to(path))
                await reader.read()
        writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, *, is_answered: bool) -> str:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.requests.append((time.monotonic(), path, is_answered))
        return path

    def _answer_to(self, path: str) -> bytes:
        if path == ROBOTS and self._redirects_robots:
            return b"HTTP/1.1 301 Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % RULES.encode()
        body = b"User-agent: *\nAllow: /\n" if path in {ROBOTS, RULES} else INDEX
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.fixture
async def serve() -> AsyncIterator:
    """Starts servers on loopback."""
    servers = []

    async def start(talk: Closing) -> int:
        servers.append(await asyncio.start_server(talk, "127.0.0.1", 0))
        return servers[-1].sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("redirects_robots", "late"),
    [(False, b""), (True, b""), (False, b"surplus"), (False, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")],
)
async def test_a_request_whose_kept_connection_closes_waits_for_its_gate(
    tmp_path, serve, redirects_robots, late
) -> None:
    """The server never sees two fetches closer than the rest, every page is fetched, and no try is counted."""
    server = Closing(redirects_robots=redirects_robots, late=late)
    host = f"closing.test:{await serve(server)}"
    politeness = {"min_delay": DELAY_S, "max_delay": DELAY_S}
    order = write_order(tmp_path, {"closing.test": "127.0.0.1"}, politeness=politeness)
    run = await anabranch("crawl", f"http://{host}/", "-c", order, "--job", "job", cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == {f"http://{host}{path}": 200 for path in ["/", *PAGES]}
    lines = (tmp_path / "job/logs/crawl.log").read_text().splitlines()
    assert [line.split()[11] for line in lines if "2t" in line.split()[11]] == []
    # Redirects of a robots.txt are followed at once, under the slot of the first fetch.
    times_s = [time_s for time_s, path, _ in server.requests if path != RULES]
    assert min(later - earlier for earlier, later in pairwise(times_s)) > DELAY_S / 2
    assert [is_answered for _, _, is_answered in server.requests].count(False) == 1  # then none is kept for a while
