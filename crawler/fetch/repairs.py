"""Answers that the parser library refuses, read as browsers read them: heads by lines, chunks by sizes.

Only what was refused comes here. A head is written anew in a form that the library takes: the library still decides where the
body ends, by a framing field that can be read in one way only. A connection with a repaired answer is never used again, because
the next answer might begin elsewhere. A dropped line decides nothing.
"""

from __future__ import annotations

import re
from enum import Enum
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The longest line of a chunk's size, and the most bytes of trailers.
MAX_SIZE_LINE_BYTES, MAX_TRAILER_BYTES = 16 * 1024, 128 * 1024

#: The most bytes before `HTTP`, such as a byte order mark.
_JUNK_BYTES = 4
#: As Chromium reads it (net/http: http_stream_parser.cc, http_response_headers.cc): up to four bytes of junk, `HTTP` in any
#: case, whatever stands before the first space, a number of three digits, or no number, and a reason.
STATUS_LINE = re.compile(
    rb"[^\r\n]{0,%d}?HTTP([^ \t\r\n]*+)[ \t]*+(?:0*(\d{3})(?!\d)|(?!\d))([^\n]*)\n" % _JUNK_BYTES, re.IGNORECASE
)
_VERSION = re.compile(rb"/(\d)[^.]*\.(\d)")
_GOOD_STATUS_LINE = re.compile(rb"HTTP/1\.[01] \d{3}(?: [^\r\n]*)?\r?\n")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2
_UNFIT_IN_VALUE = re.compile(rb"[\r\0]")
_CONTROLS = re.compile(rb"[\0-\x08\x0a-\x1f\x7f]")
_SIZE_LINE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?")
_SIZE_START = re.compile(rb"[ \t]*(?:[0-9A-Fa-f]{1,15}[ \t]*(?:;[^\n]*)?\r?)?")
#: The largest Content-Length that means anything: 18 digits.
_LENGTH = re.compile(rb"\d{1,18}")

_FRAMING = (b"content-length", b"transfer-encoding")


class Repair(Enum):
    """A repair of an answer; the value is the annotation in `crawl.log`."""

    STATUS_LINE = "httpRepair:statusLine"  #: `http/1 200`, or one with more spaces, or without a number
    LINES = "httpRepair:lines"  #: lines that are no fields were dropped, or have odd ends
    FRAMING = "httpRepair:framing"  #: lengths that are repeated, wrong, or beside chunks; odd transfer codings
    CHUNKS = "httpRepair:chunks"  #: chunks with other line ends, or spaces before their sizes
    OLD_TLS = "oldTLS"  #: the server offers only what the library counts as too weak; its certificate is valid


def may_be_head(data: bytes, *, is_first: bool) -> bool:
    """Whether these bytes begin a head that browsers can read: with a status line, or the start of one. Pure.

    Only the first answer of a connection may have junk before it: before a later one it is the end of another answer.
    """
    if not (is_first or b"HTTP".startswith(data[:4].upper())):
        return False
    if b"\n" in data:
        return STATUS_LINE.match(data) is not None
    return any(b"HTTP".startswith(data[place : place + 4].upper()) for place in range(_JUNK_BYTES + 1))


def status_of(line: re.Match[bytes]) -> int:
    """The number of a match of `STATUS_LINE`; 200 without one, as in Chromium."""
    return int(line[2] or b"200")


def version_of(line: re.Match[bytes]) -> tuple[int, int]:
    """The version of a match of `STATUS_LINE`, as Chromium takes it: 1.0 for what is older or none, 1.1 for the rest."""
    found = _VERSION.match(line[1])
    return (1, 1) if found is not None and found.groups() >= (b"1", b"1") else (1, 0)


class RepairedHead(NamedTuple):
    """A head that was refused, and one with the same meaning that is taken; at least one repair."""

    status: int
    data: bytes  #: what the library reads in its place
    received: tuple[bytes, ...]  #: all lines behind the status line, as received
    repairs: tuple[Repair, ...]


def repaired_head(head: bytes) -> RepairedHead | None:
    """Read a whole head, up to and with its empty line; None if browsers cannot read it either. Pure; O(bytes).

    A line is dropped if it has no colon, if its name is no token (a space before the colon, too), or if a CR or NUL stands in
    it; lines that are folded behind it are dropped with it. Of the rest, chunked wins over a length; equal lengths are one;
    what is no length, and other transfer codings, are ignored, so that the body may end with the connection.
    """
    status_line = STATUS_LINE.match(head)
    if status_line is None:
        return None
    rest = head[status_line.end() :].rstrip(b"\r\n")
    received = [line.rstrip(b"\r") for line in rest.split(b"\n")] if rest else []
    fields, is_dropped = _fields(received)
    sent_framing = [field for field in fields if field[0].lower() in _FRAMING]
    framing = _framing(sent_framing)
    if framing is None:
        return None
    is_wrong = {
        Repair.STATUS_LINE: _GOOD_STATUS_LINE.match(head) is None,
        Repair.LINES: is_dropped,
        Repair.FRAMING: framing != sent_framing,
    }
    status, reason = status_of(status_line), _CONTROLS.sub(b" ", status_line[3]).strip()
    lines = [b"HTTP/%d.%d %03d %s" % (*version_of(status_line), status, reason)]
    lines += [b"%s: %s" % field for field in fields if field[0].lower() not in _FRAMING]
    lines += [b"%s: %s" % field for field in framing]
    # If nothing of it is wrong, the ends of its lines are odd, or bytes came before it.
    repairs = tuple(compress(is_wrong, is_wrong.values())) or (Repair.LINES,)
    return RepairedHead(status, b"\r\n".join([*lines, b"", b""]), tuple(received), repairs)


def _fields(lines: list[bytes]) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The fields, each with the lines folded behind it, and whether a line was dropped. Cost: linear."""
    fields: list[tuple[bytes, list[bytes]]] = []
    are_dropped, is_field = False, False
    for line in lines:
        is_folded = line[:1] in (b" ", b"\t")
        name, colon, value = line.partition(b":")
        if not is_folded:
            is_field = bool(colon) and _TOKEN.fullmatch(name) is not None
        is_field = is_field and _UNFIT_IN_VALUE.search(line) is None
        are_dropped |= not is_field
        if is_field and is_folded:
            fields[-1][1].append(line.strip())
        elif is_field:
            fields.append((name, [value.strip()]))
    return [(name, b" ".join(pieces)) for name, pieces in fields], are_dropped


def _framing(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]] | None:
    """The field that says where the body ends; empty if the connection's end does, None if lengths contradict each other."""
    if is_chunked(fields):
        return [(b"Transfer-Encoding", b"chunked")]
    lengths = {int(word) for word in _words(fields, b"content-length") if _LENGTH.fullmatch(word)}
    return [(b"Content-Length", b"%d" % length) for length in lengths] if len(lengths) < 2 else None


def is_chunked(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether `chunked` is one of the transfer codings, wherever it stands. Pure."""
    return b"chunked" in _words(fields, b"transfer-encoding")


def _words(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """The words of all fields of this name, in lower case."""
    words = [word.strip().lower() for field, value in fields if field.lower() == name for word in value.split(b",")]
    return [word for word in words if word]


class ChunkReader:
    """Reads a chunked body, from its start, whose framing the library refuses: LF for CR LF, spaces around sizes."""

    def __init__(self, known_bytes: int = 0) -> None:
        """So many bytes of the content are known: they are read again, and not returned."""
        self._known_bytes = known_bytes
        self.is_ended = False  #: the last chunk and its trailers were read
        self.has_surplus = False  #: bytes came behind them
        self.fault = ""  #: why no more can be read
        self._left_bytes = 0  #: of the chunk's content
        self._waits_for_line_end = False  #: the line end behind the content
        self._is_in_trailers = False
        self._trailer_bytes = 0
        self._buffer = b""

    def feed(self, data: bytes) -> bytes:
        """The new content in these bytes, up to the fault or the end. O(bytes); keeps at most the start of a line."""
        data, found, place = self._buffer + data, [], 0
        while place < len(data) and not (self.is_ended or self.fault):
            if self._left_bytes:
                piece = data[place : place + self._left_bytes]
                found.append(piece)
                place += len(piece)
                self._left_bytes -= len(piece)
                continue
            end = data.find(b"\n", place)
            if end < 0:
                self._check_start(data[place:])
                break
            self._read_line(data[place:end].removesuffix(b"\r"))
            place = end + 1
        self._buffer = data[place:]
        self.has_surplus = self.is_ended and bool(self._buffer)
        content, known = b"".join(found), self._known_bytes
        self._known_bytes = max(known - len(content), 0)
        return content[known:]

    def _check_start(self, line: bytes) -> None:
        """Fail on the start of a line that is too long or can have no size, instead of waiting for its end."""
        if len(line) > MAX_SIZE_LINE_BYTES:
            self.fault = "a line between chunks has no end"
        elif not (self._is_in_trailers or self._waits_for_line_end or _SIZE_START.fullmatch(line)):
            self.fault = "a chunk has no size"

    def _read_line(self, line: bytes) -> None:
        if self._is_in_trailers:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MAX_TRAILER_BYTES:
                self.fault = "the trailers have no end"
            self.is_ended = not line
        elif self._waits_for_line_end:
            if line:
                self.fault = "a chunk is longer than its size"
            self._waits_for_line_end = False
        elif len(line) > MAX_SIZE_LINE_BYTES or (size := _SIZE_LINE.fullmatch(line)) is None:
            self.fault = "a chunk has no size"
        else:
            self._left_bytes = int(size[1], 16)
            self._is_in_trailers = not self._left_bytes
            self._waits_for_line_end = not self._is_in_trailers
