"""The parts of a hostile host: the request with its raw bytes, a socket to misuse, and the record that describes the host."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple

HTML = "text/html; charset=utf-8"
#: A URL below it stands where no crawler may find a link: a request for it is a mistake that the ledger shows.
TRAP = "/trap/"
CHUNK_BYTES = 1 << 16


class Ask:
    """One request, and the connection that it came by. Sending raises ConnectionError once the client has gone."""

    def __init__(self, host: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host = host  #: lower case, without the server's own port
        self.target = target  #: path and query, byte for byte (as Latin-1)
        self.status = 0  #: what the ledger says of the answer; 0 = no whole answer
        self.is_kept = False  #: the connection stays open for another request
        self._reader = reader
        self._writer = writer

    @property
    def port(self) -> int:
        """The server's port."""
        port = self._writer.get_extra_info("sockname")[1]
        assert isinstance(port, int)
        return port

    async def say(self, data: bytes) -> None:
        """Send these bytes; waits while the client does not read."""
        self._writer.write(data)
        await self._writer.drain()
        if self._writer.is_closing():
            raise ConnectionResetError("the client is gone")

    async def drip(self, data: bytes, every_s: float) -> None:
        """Send one byte after the other, with so many seconds between them."""
        for number in range(len(data)):
            await self.say(data[number : number + 1])
            await asyncio.sleep(every_s)

    async def flood(self, data: bytes) -> None:
        """Send this again and again until the client has gone."""
        while True:
            await self.say(data)
            await asyncio.sleep(0)  # `drain` does not wait while the socket takes all: others have their turn

    async def page(self, body: bytes, kind: str = HTML, *fields: str, status: int = 200) -> None:
        """An honest answer, with these header fields beside its own."""
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *fields]
        self.status = status
        ending = "Connection: keep-alive" if self.is_kept else "Connection: close"
        await self.say("\r\n".join([*lines, ending, "", ""]).encode("latin-1"))
        for start in range(0, len(body), CHUNK_BYTES):
            await self.say(body[start : start + CHUNK_BYTES])

    async def silence(self) -> None:
        """Say nothing more until the client has gone."""
        while await self._reader.read(CHUNK_BYTES):
            pass

    def reset(self) -> None:
        """End the connection with RST: what was sent and not read is lost."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


#: Answers one request, or does not. What it raises of ConnectionError is the client's leaving.
Answer = Callable[[Ask], Awaitable[None]]


class Hostile(NamedTuple):
    """One hostile host."""

    words: str  #: what it does, in one line
    answer: Answer  #: to every request but that for robots.txt
    statuses: tuple[int, ...]  #: what its first URL may end with: HTTP's, or Heritrix's codes
    target: str = "/"  #: of the first URL
    robots: Answer | None = None  #: None: there is no robots.txt
    is_endless: bool = False  #: it has ever more URLs: the crawl ends by its own limits


def page(body: str | bytes, kind: str = HTML, *fields: str, status: int = 200) -> Answer:
    """Make an answer that sends one honest page for every request."""
    data = body.encode() if isinstance(body, str) else body

    async def answer(ask: Ask) -> None:
        await ask.page(data, kind, *fields, status=status)

    return answer


def links(*hrefs: str) -> str:
    """A small HTML page with these links."""
    return "<!DOCTYPE html><title>x</title>" + "".join(f'<a href="{href}">x</a>\n' for href in hrefs)


def raw(*parts: bytes, then: str = "close") -> Answer:
    """These bytes as they are, then the connection is closed, reset, or stays open in silence."""

    async def answer(ask: Ask) -> None:
        for part in parts:
            await ask.say(part)
        if then == "silence":
            await ask.silence()
        elif then == "reset":
            await asyncio.sleep(0)
            ask.reset()

    return answer


def streamed(head: bytes, unit: bytes, times: int | None = None, tail: bytes = b"") -> Answer:
    """A head, then a unit again and again (None: for ever), then a tail; nothing is ever held whole."""
    block = unit * max(1, CHUNK_BYTES // len(unit))

    async def answer(ask: Ask) -> None:
        await ask.say(head)
        if times is None:
            await ask.flood(block)
            return
        for _ in range(times * len(unit) // len(block)):
            await ask.say(block)
        await ask.say(unit * (times - times * len(unit) // len(block) * (len(block) // len(unit))) + tail)
        ask.status = 200

    return answer
