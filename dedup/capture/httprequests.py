"""The client's half of one HTTP/1 connection, in order, to the URLs that it asks for.

Source: RFC 9112 (message syntax; §2.2 empty lines before a request, §3.2 forms of the target, §6 body length, §7.1 chunks).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar

from anabranch.dedup.capture.statistics import CaptureStatistics

#: a head that is not complete within so many bytes is given up (servers' usual bounds are 8 to 16 KiB)
MAX_HEAD_BYTES = 32_768

_BEGINS_LIKE_A_REQUEST = re.compile(rb"[A-Z][A-Z-]{0,15}(?: |\Z)")
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,15}) +([^\x00-\x20\x7f]+) +HTTP/1\.[01][ \t]*\r?\n?")
_HEAD_END = re.compile(rb"\n\r?\n")
_ABSOLUTE = re.compile(rb"https?://[^/?#]", re.IGNORECASE)
_HOST = re.compile(rb"[^\x00-\x20\x7f/?#@\\]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,15}")


class _Expects(Enum):
    """What the next bytes are."""

    HEAD = auto()
    BODY = auto()
    CHUNK = auto()
    TRAILER = auto()
    #: unknown: a request may begin at the next piece that looks like one
    ANYTHING = auto()
    #: no request will come: a server's half, or a tunnel
    NOTHING = auto()


class HttpRequests:
    """Takes the bytes of one direction piece by piece and gives back the URLs of the requests whose heads are complete.

    Holds at most MAX_HEAD_BYTES and one piece. Bytes that are no HTTP are dropped until a piece begins like a request.
    """

    __slots__ = ("_buffer", "_counts", "_expects", "_scanned", "_skip", "_urls")

    def __init__(self, counts: CaptureStatistics) -> None:
        self._counts = counts
        self._expects = _Expects.ANYTHING
        self._buffer = bytearray()
        self._scanned = 0  # no end of a head lies before this offset
        self._skip = 0  # body bytes still to come
        self._urls: list[bytes] = []

    @property
    def skippable_bytes(self) -> int:
        """So many of the next bytes are a body and need not be known."""
        return self._skip

    @property
    def is_over(self) -> bool:
        """No request can come any more."""
        return self._expects is _Expects.NOTHING

    def skip(self, count: int) -> None:
        """Leave out `count` <= `skippable_bytes` bytes that were not captured."""
        self._skip -= count

    def end(self) -> None:
        """Expect no further request: this half is a server's."""
        self._expects = _Expects.NOTHING
        self._forget()

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the URLs that they complete, in order."""
        if self._expects is _Expects.NOTHING:
            return []
        if self._expects is _Expects.ANYTHING:
            if not _BEGINS_LIKE_A_REQUEST.match(piece.lstrip(b"\r\n")):
                self._look_for_a_server(piece)
                return []
            self._expects = _Expects.HEAD
        self._buffer += piece
        while self._buffer and self._STEPS[self._expects](self):
            pass
        return self._taken()

    def break_off(self) -> list[bytes]:
        """The next bytes are missing. A head that already shows its Host still counts; then anything may follow."""
        if self._expects is _Expects.HEAD and self._buffer:
            self._take_partial_head()
        if self._expects is not _Expects.NOTHING:
            self._expects = _Expects.ANYTHING
        self._forget()
        return self._taken()

    def _taken(self) -> list[bytes]:
        urls, self._urls = self._urls, []
        return urls

    def _forget(self) -> None:
        self._buffer.clear()
        self._scanned = self._skip = 0

    def _lose(self) -> bool:
        self._expects = _Expects.ANYTHING
        self._forget()
        return False

    def _look_for_a_server(self, piece: bytes) -> None:
        if piece.startswith(b"HTTP/1."):
            self.end()

    def _head(self) -> bool:
        while self._buffer.startswith((b"\r", b"\n")):
            del self._buffer[:1]
        if not _BEGINS_LIKE_A_REQUEST.match(self._buffer):
            return bool(self._buffer) and self._lose_head()
        line_end = self._buffer.find(b"\n", 0, MAX_HEAD_BYTES)
        if line_end >= self._scanned and not _REQUEST_LINE.fullmatch(self._buffer, 0, line_end + 1):
            return self._lose()
        end = _HEAD_END.search(self._buffer, max(0, self._scanned - 2), MAX_HEAD_BYTES)
        if end is None:
            self._scanned = len(self._buffer)
            return len(self._buffer) >= MAX_HEAD_BYTES and self._give_up_head()
        lines = bytes(self._buffer[: end.start()]).split(b"\n")
        del self._buffer[: end.end()]
        self._scanned = 0
        self._take_head(lines)
        return True

    def _lose_head(self) -> bool:
        piece = bytes(self._buffer[:7])
        self._lose()
        self._look_for_a_server(piece)
        return False

    def _give_up_head(self) -> bool:
        self._take_partial_head()
        return self._lose()

    def _take_partial_head(self) -> None:
        *whole_lines, _ = bytes(self._buffer[:MAX_HEAD_BYTES]).split(b"\n")
        if whole_lines and b"host" in (fields := _fields(whole_lines[1:])):
            self._take_request(whole_lines[0], fields)
        else:
            self._counts.broken_heads += 1

    def _take_head(self, lines: list[bytes]) -> None:
        fields = _fields(lines[1:])
        method = self._take_request(lines[0], fields)
        self._expects, self._skip = _what_follows(method, fields)
        if self._expects in (_Expects.ANYTHING, _Expects.NOTHING):
            self._forget()

    def _take_request(self, line: bytes, fields: dict[bytes, list[bytes]]) -> bytes:
        request = _REQUEST_LINE.fullmatch(line)
        assert request is not None, "the request line was looked at when it was complete"
        self._counts.requests += 1
        url = url_of_request(request[1], request[2], fields.get(b"host", []))
        if url is None:
            self._counts.requests_without_url += 1
        else:
            self._urls.append(url)
        return request[1]

    def _body(self) -> bool:
        """Content, or a chunk with its line end; what follows a body without chunks is a head."""
        here = min(self._skip, len(self._buffer))
        del self._buffer[:here]
        self._skip -= here
        if self._skip == 0:
            self._expects = _Expects.HEAD
        return self._skip == 0

    def _chunk(self) -> bool:
        """A chunk's size, its content and the line end behind it."""
        here = min(self._skip, len(self._buffer))
        del self._buffer[:here]
        self._skip -= here
        line = self._line()
        if line is None:
            return False
        if line in (b"\r\n", b"\n"):  # behind the content of a chunk
            return True
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            return self._lose()
        self._skip = int(size[1], 16)
        if self._skip == 0:
            self._expects = _Expects.TRAILER
        return True

    def _trailer(self) -> bool:
        line = self._line()
        if line in (b"\r\n", b"\n"):
            self._expects = _Expects.HEAD
        return line is not None

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n", 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD_BYTES:
                self._lose()
            return None
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    #: one step per state in which the buffer may hold bytes: take some off it; False if more are needed, or none is left
    _STEPS: ClassVar[dict[_Expects, Callable[[HttpRequests], bool]]] = {
        _Expects.HEAD: _head,
        _Expects.BODY: _body,
        _Expects.CHUNK: _chunk,
        _Expects.TRAILER: _trailer,
    }


def url_of_request(method: bytes, target: bytes, hosts: list[bytes]) -> bytes | None:
    """`http://` + Host + target, or the target itself if it is absolute; None if the request names no one URL.

    CONNECT and `*` name none. Several different Hosts name none (RFC 9112 §3.2). The bytes stay as they were sent.
    """
    if method == b"CONNECT":
        return None
    if _ABSOLUTE.match(target):
        return target
    if not target.startswith(b"/") or len(set(hosts)) != 1 or not _HOST.fullmatch(hosts[0]):
        return None
    return b"http://" + hosts[0] + target


def _fields(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    fields: dict[bytes, list[bytes]] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields.setdefault(name.strip().lower(), []).append(value.strip())
    return fields


def _what_follows(method: bytes, fields: dict[bytes, list[bytes]]) -> tuple[_Expects, int]:
    """What comes behind a head, and the length of the body if that is stated (RFC 9112 §6.3)."""
    if method == b"CONNECT":
        return _Expects.NOTHING, 0
    codings = b",".join(fields.get(b"transfer-encoding", [])).lower()
    if codings:
        chunked = codings.rpartition(b",")[2].strip() == b"chunked"
        return (_Expects.CHUNK if chunked else _Expects.ANYTHING), 0
    lengths = set(fields.get(b"content-length", [b"0"]))
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        return _Expects.ANYTHING, 0
    return (_Expects.BODY, int(length)) if int(length) else (_Expects.HEAD, 0)
