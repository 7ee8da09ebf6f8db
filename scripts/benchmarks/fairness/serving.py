"""The servers of `scripts/bench fairness`, at one port of loopback: `python -m scripts.benchmarks.fairness.serving LEDGER`.

It prints the port of HTTP and that of the name server, and ends with its standard input. LEDGER gets the time of each request
for a page of a good host.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import IO

ADDRESS = "127.0.0.1"
WILD_NAMES = 100_000
WILD_LINKS = 2_000

_SEED = 20261128
_LINKS = 3  #: of a page of a good host
_FILLING = b"z" * 2_000


def page(host: str, path: str, chance: random.Random) -> bytes | None:
    """The page of a host, whose site has no end; None: the host never answers."""
    name, _, port = host.partition(":")
    if name.endswith(".good.test"):
        number = int(path[1:] or 0) * _LINKS
        links = [f"/{number + more}" for more in range(1, _LINKS + 1)]
    elif name.endswith("wild.test"):
        links = [f"http://s{chance.randrange(WILD_NAMES)}.wild.test:{port}/" for _ in range(WILD_LINKS)]
    else:
        return None
    return b"<html>" + "".join(f'<a href="{link}">x</a>' for link in links).encode() + _FILLING


def answer(query: bytes) -> bytes:
    """The answer of the name server: each name has the address of loopback, and no other record."""
    end = query.index(b"\0", 12) + 5
    is_address = query[end - 4 : end - 2] == b"\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\x0e\x10\0\4" + bytes(map(int, ADDRESS.split("."))) if is_address else b""
    return query[:2] + b"\x81\x80\0\1" + (b"\0\1" if record else b"\0\0") + b"\0\0\0\0" + query[12:end] + record


class _Names(asyncio.DatagramProtocol):
    _transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, query: bytes, address: tuple[str, int]) -> None:
        self._transport.sendto(answer(query), address)


class _Web:
    def __init__(self, ledger: IO[str]) -> None:
        self._ledger = ledger
        self._chance = random.Random(_SEED)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._one(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        path, lines = head.split(" ", 2)[1], head.lower().split("\r\n")
        host = next(line[5:].strip() for line in lines if line.startswith("host:"))
        body = page(host, "/" if path == "/robots.txt" else path, self._chance)
        if body is None:
            await reader.read()  # until the other side gives up
        elif path == "/robots.txt":
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        else:
            if ".good." in host:
                self._ledger.write(f"{time.time():.3f}\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()


async def serve(ledger: Path) -> None:
    """Serve until the standard input ends."""
    loop = asyncio.get_running_loop()
    with ledger.open("a", buffering=1) as lines:
        web = await asyncio.start_server(_Web(lines).serve, ADDRESS, 0, limit=1 << 20, backlog=1000)
        names, _ = await loop.create_datagram_endpoint(_Names, (ADDRESS, 0))
        print(web.sockets[0].getsockname()[1], names.get_extra_info("sockname")[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        names.close()
        web.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
