"""An answer whose head has been read, and what came of a head without end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from aiohttp import StreamReader
from aiohttp.http import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy

#: Most headers of an answer; the rest is cut.
MAX_HEADERS = 1000

_STATUS_LINE = re.compile(rb"HTTP/(\d)\.(\d) (\d{3})(?: ([^\r\n]*))?\r?\n")
_INFORMATIONAL = re.compile(rb"(?:HTTP/1\.[01] 1(?!01)\d\d[^\n]*\n(?:[^\r\n][^\n]*\n)*\r?\n)+")


class Answer(NamedTuple):
    """The head, and where the body comes."""

    status: int
    reason: str  #: its words, as sent
    version: tuple[int, int]  #: of HTTP
    headers: CIMultiDictProxy[str]
    raw_headers: tuple[tuple[bytes, bytes], ...]
    content: StreamReader
    is_head_cut: bool = False  #: its head had no end; there is no body

    def at_hand(self) -> bytes:
        """What is left of the body if its end has come, as it mostly has with the head; else none, and one has to wait."""
        content = self.content
        if not content.is_eof() or content.at_eof():
            return b""
        pieces = content._buffer  # noqa: SLF001 - `readany` has the parser go on for each piece
        found = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return found

    def unread(self) -> bytes:
        """What came of the body and was not read: once it has broken off, aiohttp hands that out no more."""
        return self.content._read_nowait(-1)  # noqa: SLF001 - there is no other way to it


def answer_of(message: RawResponseMessage, content: StreamReader) -> Answer:
    """What aiohttp's parser has read."""
    return Answer(message.code, message.reason, message.version, message.headers, message.raw_headers, content)


def cut_answer(head: bytes) -> Answer | None:
    """What came of a head without end: the status, if that did, and the whole lines."""
    found = _INFORMATIONAL.sub(b"", head, count=1)
    line = _STATUS_LINE.match(found)
    if line is None:
        return None
    lines = found[line.end() :].split(b"\n", MAX_HEADERS + 1)[:-1]  # the last one is not whole
    parted = (one.rstrip(b"\r").partition(b":") for one in lines)
    fields = tuple((name, value.strip()) for name, colon, value in parted if colon and name.strip())
    reason = (line[4] or b"").decode("utf-8", "surrogateescape")
    return Answer(
        int(line[3]), reason, (int(line[1]), int(line[2])), by_name(fields), fields, EMPTY_PAYLOAD, is_head_cut=True
    )


def by_name(fields: Iterable[tuple[bytes, bytes]]) -> CIMultiDictProxy[str]:
    """Raw headers, to be asked for by name."""
    return CIMultiDictProxy(
        CIMultiDict(
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            for name, value in fields
        )
    )
