"""From TCP segments, in the order they were captured, to the URLs of the HTTP/1 requests in them.

`TcpFlows` orders the segments of each flow, with bounded memory; sequence numbers are compared modulo 2^32 (RFC 9293
§3.4). `HttpRequests` parses one direction of a connection (RFC 9112: §2.2 empty lines before a request, §3.2 forms of the
target, §6 body length, §7.1 chunks).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from anabranch.dedup.capture.frames import CaptureStatistics, Segment

#: a segment farther away than this is no reordering: the reader goes on there
WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Bounds of the memory: at most flows × (early_bytes + a head of 32 KiB), 336 MiB when all are filled."""

    flows: int = 2048  #: directions of connections; the one unused for longest is forgotten first
    early_bytes: int = 131_072  #: bytes per flow that came before bytes that belong in front of them
    early_segments: int = 64  #: segments per flow of the same kind


class _Flow:
    """One direction of one connection: puts segments in order and feeds the requests' parser."""

    __slots__ = ("_counts", "_early", "_limits", "_next", "opened_at", "requests")

    def __init__(self, sequence: int, limits: FlowLimits, counts: CaptureStatistics, *, is_opening: bool) -> None:
        self.requests = HttpRequests(counts)
        #: sequence number of the first byte, if the opening segment was captured
        self.opened_at = sequence if is_opening else None
        self._limits = limits
        self._counts = counts
        self._next = sequence  # of the next byte to feed
        self._early: dict[int, Segment] = {}

    def take(self, segment: Segment) -> list[bytes]:
        distance = _distance(self._next, segment.sequence)
        if 0 < distance <= self.requests.skippable_bytes:  # the hole lies in a body
            self._pass_over(distance)
            distance = 0
        if abs(distance) > WINDOW_BYTES:
            urls = self.give_up_waiting()
            self._counts.count("gaps")
            self._next = segment.sequence
            return urls + self._accept(segment)
        if distance > 0:
            return self._keep(segment)
        return self._accept(segment) + self._drain()

    def give_up_waiting(self) -> list[bytes]:
        """Go on behind every hole, in order, and break off an incomplete head."""
        urls: list[bytes] = []
        while self._early:
            urls += self._jump()
        return urls + self.requests.break_off()

    def _break_off(self) -> list[bytes]:
        self._counts.count("gaps")
        return self.requests.break_off()

    def _pass_over(self, count: int) -> None:
        self.requests.skip(count)
        self._next = (self._next + count) & 0xFFFFFFFF

    def _keep(self, segment: Segment) -> list[bytes]:
        known = self._early.get(segment.sequence)
        if known is None or len(known.payload) < len(segment.payload):
            self._early[segment.sequence] = segment
        else:
            self._counts.count("retransmissions")
        held = sum(len(early.payload) for early in self._early.values())
        if held > self._limits.early_bytes or len(self._early) > self._limits.early_segments:
            return self._jump()
        return []

    def _jump(self) -> list[bytes]:
        """The hole will not be filled: go on at the first segment behind it."""
        urls = self._break_off()
        self._next = min(self._early, key=lambda sequence: _distance(self._next, sequence))
        return urls + self._drain()

    def _drain(self) -> list[bytes]:
        urls: list[bytes] = []
        while ready := [s for s in self._early if _distance(self._next, s) <= self.requests.skippable_bytes]:
            urls += self._accept(self._early.pop(min(ready, key=lambda s: _distance(self._next, s))))
        return urls

    def _accept(self, segment: Segment) -> list[bytes]:
        """Feed the new bytes of a segment that begins at or before the next byte, or within a body that may be skipped."""
        distance = _distance(self._next, segment.sequence)
        if distance > 0:
            self._pass_over(distance)
            distance = 0
        sent = len(segment.payload) + segment.missing_bytes
        if sent + distance <= 0:
            self._counts.count("retransmissions")
            return []
        self._next = (segment.sequence + sent) & 0xFFFFFFFF
        urls = self.requests.feed(segment.payload[-distance:])
        missing = min(segment.missing_bytes, sent + distance)
        if missing > self.requests.skippable_bytes:
            return urls + self._break_off()
        self.requests.skip(missing)
        return urls


class TcpFlows:
    """All flows of one capture. Takes segments, gives back URLs; forgets the one unused for longest when there are too many."""

    __slots__ = ("_counts", "_flows", "_limits")

    def __init__(self, counts: CaptureStatistics, limits: FlowLimits | None = None) -> None:
        self._counts = counts
        self._limits = limits or FlowLimits()
        self._flows: OrderedDict[bytes, _Flow] = OrderedDict()

    def take(self, segment: Segment) -> list[bytes]:
        """The URLs that this segment completes, in the order of their flow."""
        if segment.resets:
            gone = self._flows.pop(segment.flow, None)
            return gone.give_up_waiting() if gone else []
        urls = self._opened(segment) if segment.opens or segment.answers else []
        if segment.payload or segment.missing_bytes:
            urls += self._use(segment)
        return urls

    def finish(self) -> list[bytes]:
        """No more segments come: the URLs behind holes and of heads that show their Host but not their end."""
        urls = [url for flow in self._flows.values() for url in flow.give_up_waiting()]
        self._flows.clear()
        return urls

    def _opened(self, segment: Segment) -> list[bytes]:
        """A connection begins, perhaps on the ports of an earlier one; a repeated opening changes nothing."""
        known = self._flows.get(segment.flow)
        if known is not None and known.opened_at == segment.sequence:
            return []
        flow = _Flow(segment.sequence, self._limits, self._counts, is_opening=True)
        if segment.answers:
            flow.requests.end()
        self._flows[segment.flow] = flow
        return (known.give_up_waiting() if known else []) + self._evict()

    def _use(self, segment: Segment) -> list[bytes]:
        flow = self._flows.get(segment.flow)
        if flow is None:
            flow = self._flows[segment.flow] = _Flow(segment.sequence, self._limits, self._counts, is_opening=False)
        self._flows.move_to_end(segment.flow)
        if flow.requests.is_over:
            return []
        return flow.take(segment) + self._evict()

    def _evict(self) -> list[bytes]:
        urls: list[bytes] = []
        while len(self._flows) > self._limits.flows:
            _, oldest = self._flows.popitem(last=False)
            self._counts.count("evicted_flows")
            urls += oldest.give_up_waiting()
        return urls


def _distance(start: int, end: int) -> int:
    """How far `end` lies behind `start`, from -2^31 to 2^31 - 1, on the circle of 2^32."""
    return ((end - start + 0x80000000) & 0xFFFFFFFF) - 0x80000000


#: a head that is not complete within this number of bytes is given up (servers' usual bounds are 8 to 16 KiB)
MAX_HEAD_BYTES = 32_768

_BEGINS_LIKE_A_REQUEST = re.compile(rb"[A-Z][A-Z-]{0,15}(?: |\Z)")
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,15}) +([^\x00-\x20\x7f]+) +HTTP/1\.[01][ \t]*\r?\n?")
_HEAD_END = re.compile(rb"\n\r?\n")
_ABSOLUTE = re.compile(rb"https?://[^/?#]", re.IGNORECASE)
_HOST = re.compile(rb"[^\x00-\x20\x7f/?#@\\]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,15}")


class _Expects(Enum):
    """The kind of bytes expected next."""

    HEAD = auto()
    BODY = auto()
    CHUNK = auto()
    TRAILER = auto()
    #: unknown: a request may begin at the next piece that looks like one
    ANYTHING = auto()
    #: no request will come: a server's half, or a tunnel
    NOTHING = auto()


class HttpRequests:
    """Takes the bytes of one direction piece by piece and returns the URLs of complete request heads.

    Holds at most MAX_HEAD_BYTES and one piece. Bytes that are no HTTP are dropped until a piece begins like a request.
    """

    __slots__ = ("_buffer", "_counts", "_expects", "_scanned", "_urls", "skippable_bytes")

    def __init__(self, counts: CaptureStatistics) -> None:
        self._counts = counts
        self._expects = _Expects.ANYTHING
        self._buffer = bytearray()
        self._scanned = 0  # no end of a head lies before this offset
        self.skippable_bytes = 0  #: number of next bytes that are a body and need not be known
        self._urls: list[bytes] = []

    @property
    def is_over(self) -> bool:
        """No request can come any more."""
        return self._expects is _Expects.NOTHING

    def skip(self, count: int) -> None:
        """Leave out `count` <= `skippable_bytes` bytes that were not captured."""
        self.skippable_bytes -= count

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
                if piece.startswith(b"HTTP/1."):
                    self.end()
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
        self._scanned = self.skippable_bytes = 0

    def _lose(self) -> bool:
        self._expects = _Expects.ANYTHING
        self._forget()
        return False

    def _head(self) -> bool:
        while self._buffer.startswith((b"\r", b"\n")):
            del self._buffer[:1]
        if not _BEGINS_LIKE_A_REQUEST.match(self._buffer):
            if self._buffer.startswith(b"HTTP/1."):
                self.end()
                return False
            return bool(self._buffer) and self._lose()
        line_end = self._buffer.find(b"\n", 0, MAX_HEAD_BYTES)
        if line_end >= self._scanned and not _REQUEST_LINE.fullmatch(self._buffer, 0, line_end + 1):
            return self._lose()
        end = _HEAD_END.search(self._buffer, max(0, self._scanned - 2), MAX_HEAD_BYTES)
        if end is None:
            self._scanned = len(self._buffer)
            if len(self._buffer) < MAX_HEAD_BYTES:
                return False
            self._take_partial_head()
            return self._lose()
        request, *lines = bytes(self._buffer[: end.start()]).split(b"\n")
        del self._buffer[: end.end()]
        self._scanned = 0
        fields = _fields(lines)
        self._expects, self.skippable_bytes = _what_follows(self._take_request(request, fields), fields)
        if self._expects in (_Expects.ANYTHING, _Expects.NOTHING):
            self._forget()
        return True

    def _take_partial_head(self) -> None:
        *whole_lines, _ = bytes(self._buffer[:MAX_HEAD_BYTES]).split(b"\n")
        if whole_lines and b"host" in (fields := _fields(whole_lines[1:])):
            self._take_request(whole_lines[0], fields)
        else:
            self._counts.count("broken_heads")

    def _take_request(self, line: bytes, fields: dict[bytes, list[bytes]]) -> bytes:
        request = _REQUEST_LINE.fullmatch(line)
        assert request is not None, "the request line was looked at when it was complete"
        self._counts.count("requests")
        url = url_of_request(request[1], request[2], fields.get(b"host", []))
        if url is None:
            self._counts.count("requests_without_url")
        else:
            self._urls.append(url)
        return request[1]

    def _body(self) -> bool:
        """Content without chunks; a head follows."""
        self._drop_content()
        if self.skippable_bytes == 0:
            self._expects = _Expects.HEAD
        return self.skippable_bytes == 0

    def _drop_content(self) -> None:
        here = min(self.skippable_bytes, len(self._buffer))
        del self._buffer[:here]
        self.skippable_bytes -= here

    def _chunk(self) -> bool:
        """A chunk's size, its content and the line end behind it."""
        self._drop_content()
        line = self._line()
        if line is None:
            return False
        if line in (b"\r\n", b"\n"):  # behind the content of a chunk
            return True
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            return self._lose()
        self.skippable_bytes = int(size[1], 16)
        if self.skippable_bytes == 0:
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
    """`http://` + Host + target, or an absolute target itself; None for CONNECT, `*` and several different Hosts (§3.2)."""
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
    """Return the kind of bytes expected after a head, and the body's length, 0 if none is stated (RFC 9112 §6.3)."""
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
