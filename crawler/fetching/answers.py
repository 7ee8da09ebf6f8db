"""aiohttp's response, as a crawl wants it: it knows its peer, and shows what came of a head without end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy

from crawler.network.wire import HeadTooLong

if TYPE_CHECKING:
    from aiohttp.connector import Connection

#: Most headers of an answer; the rest is cut.
MAX_HEADERS = 1000

_STATUS_LINE = re.compile(rb"HTTP/(\d)\.(\d) (\d{3})(?: ([^\r\n]*))?\r?\n")
_INFORMATIONAL = re.compile(rb"(?:HTTP/1\.[01] 1(?!01)\d\d[^\n]*\n(?:[^\r\n][^\n]*\n)*\r?\n)+")


class Answer(aiohttp.ClientResponse):
    """An answer whose head has been read."""

    address = ""  #: IP address that the connection went to
    is_head_cut = False  #: its head had no end; there is no body

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """A short answer has left its connection when this returns, so the peer is asked for before."""
        assert connection.transport is not None
        peer = connection.transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        try:
            return await super().start(connection)
        except HeadTooLong as error:
            found = _INFORMATIONAL.sub(b"", error.head, count=1)
            line = _STATUS_LINE.match(found)
            if line is None:
                raise
            self.close()
            self._take(line, found[line.end() :])
            return self

    def unread(self) -> bytes:
        """What came of the body and was not read: once it has broken off, aiohttp hands that out no more."""
        return self.content._read_nowait(-1)  # noqa: SLF001 - there is no other way to it

    def _take(self, line: re.Match[bytes], rest: bytes) -> None:
        lines = rest.split(b"\n", MAX_HEADERS + 1)[:-1]  # the last one is not whole
        parted = (one.rstrip(b"\r").partition(b":") for one in lines)
        self.is_head_cut = True
        self.version = aiohttp.HttpVersion(int(line[1]), int(line[2]))
        self.status = int(line[3])
        self.reason = (line[4] or b"").decode("utf-8", "surrogateescape")
        self._raw_headers = tuple((name, value.strip()) for name, colon, value in parted if colon and name.strip())
        self._headers = by_name(self._raw_headers)
        self.content = EMPTY_PAYLOAD


def by_name(fields: Iterable[tuple[bytes, bytes]]) -> CIMultiDictProxy[str]:
    """Raw headers, to be asked for by name."""
    return CIMultiDictProxy(
        CIMultiDict(
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            for name, value in fields
        )
    )
