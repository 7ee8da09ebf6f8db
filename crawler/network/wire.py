"""What comes over one connection, bounded before a parser collects it: heads without end, framing without content.

aiohttp bounds a header's length and their number, not all together, and throws away what it has read of a head that is too
long. Here the bytes of a head that comes in pieces are counted (those of 1xx answers with it), and kept until it is whole, so
that what came of an endless one can be shown. Trailers and chunk extensions are bounded alike: so many bytes without any
content are too many.

An answer ends where its framing says so. Bytes behind it are surplus: they never reach the parser, which would throw the answer
away with them; the connection is closed, since nobody knows what they are.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from aiohttp import ClientPayloadError, ServerDisconnectedError
from aiohttp.client_proto import ResponseHandler
from aiohttp.streams import EMPTY_PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.http import RawResponseMessage
    from aiohttp.streams import StreamReader

#: The longest head of an answer, 1xx answers before it included; and the most framing without content.
MAX_HEAD_BYTES = 128 * 1024
#: Headers that a head of that size can hold.
MAX_HEADER_LINES = MAX_HEAD_BYTES // 4

#: How much of a body waits in a connection before the server is made to wait.
READ_BUFFER_BYTES = 64 * 1024

#: A head is parsed in such pieces, so that it is cut near the limit whatever the packets.
_PIECE_BYTES = 16 * 1024

_END_OF_HEAD = re.compile(rb"\n\r?\n")
#: The last bytes that tell whether a chunked body ended with its last chunk's empty line.
_LAST_BYTES = 3


@dataclass(slots=True)
class Dial:
    """One fetch, as the place sees it where connections are made."""

    is_proxied: bool = False  #: what is dialled is a proxy, which the operator chose
    is_fresh: bool = False  #: a connection was made for it; else a kept one was used
    made: int = 0  #: sockets made to allowed addresses
    refused: str = ""  #: the last address that was refused
    lacks_files: bool = False  #: the last socket could not be made: too many files are open


#: The dial of the fetch under way in this task (and in the tasks that race its addresses).
DIAL: ContextVar[Dial] = ContextVar("DIAL")


class HeadTooLong(Exception):
    """An answer's head goes beyond `MAX_HEAD_BYTES`; `head` is what came of it."""

    def __init__(self, head: bytes) -> None:
        super().__init__(f"headers beyond {MAX_HEAD_BYTES} bytes")
        self.head = head


class Wire(ResponseHandler):
    """aiohttp's side of one connection, with those bounds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[ResponseHandler], None]) -> None:
        """`on_lost` is told when the connection is gone."""
        super().__init__(loop)
        self.address = ""  #: IP address of the other end
        self.has_surplus = False  #: bytes came behind the answer
        self._on_lost = on_lost
        self._head = bytearray()
        self._is_in_head = False
        self._is_at_rest = False  #: an exchange has ended, and no other has begun
        self._between_s: float | None = None
        self._over_s = inf  #: loop time at which the exchange has to be over
        self._due_s = inf  #: loop time at which silence has lasted too long, or that
        self._framing_bytes = 0  #: since the last content
        self._content_bytes = 0  #: content until then
        self._left_bytes: int | None = None  #: of a body with a Content-Length
        self._last = b""  #: what came last of a body in chunks

    def ask(self, request: bytes, over_s: float, first_byte_s: float | None, between_s: float | None) -> None:
        """Send a request; `read` gives the answer, when that is more than information.

        A request has no body, so that it goes out in one write, which never waits. At the loop's time `over_s` the exchange has
        to be over; `first_byte_s` may pass from the request's end to the answer's first byte, `between_s` between two reads;
        `None` = as long as it likes.

        Raises: ServerDisconnectedError if the connection is gone.
        """
        transport = self.transport
        if transport is None:
            raise ServerDisconnectedError
        self._begin()
        super().set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=first_byte_s,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=2 * MAX_HEAD_BYTES,  # the wire counts
            max_field_size=2 * MAX_HEAD_BYTES,
            max_headers=MAX_HEADER_LINES,
        )
        self._between_s = between_s
        self._over_s = over_s
        transport.write(request)
        self._reschedule_timeout()

    def rest(self) -> None:
        """The exchange has ended: nothing is waited for, and nothing may come."""
        self._is_at_rest = True
        self._over_s = self._due_s = inf

    def set_response_params(self, **params: Any) -> None:
        """A request of aiohttp's own, for a connection through a proxy, goes out in a moment."""
        self._begin()
        super().set_response_params(**params)

    def _begin(self) -> None:
        """The next bytes are an answer's head."""
        self._head.clear()
        self._is_in_head = True
        self._is_at_rest = self.has_surplus = False
        self._framing_bytes = self._content_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The other end is there."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone, and its timer with it."""
        self._on_lost(self)
        if self._payload is not None and self._payload.is_eof():
            self._payload = None  # it is whole, whatever becomes of the connection
        super().connection_lost(exc)
        super()._drop_timeout()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """A body has been read, or has ended; most were never held up."""
        if self._reading_paused or resume_parser:
            super().resume_reading(resume_parser)

    def _reschedule_timeout(self) -> None:
        """One timer waits for the latest read and for the exchange's end; aiohttp makes one for each read."""
        silence_s, due_s = self._read_timeout, self._over_s
        if silence_s is not None and (silent_s := self._loop.time() + silence_s) < due_s:
            due_s = silent_s
        self._due_s = due_s
        handle = self._read_timeout_handle
        if due_s < inf and (handle is None or handle.when() > due_s):
            super()._drop_timeout()
            self._read_timeout_handle = self._loop.call_at(due_s, self._look)

    def _drop_timeout(self) -> None:
        """No read is waited for, only the exchange's end; a timer may run out by itself."""
        self._due_s = self._over_s

    def _look(self) -> None:
        self._read_timeout_handle = None
        due_s = self._due_s
        if due_s > self._loop.time():
            if due_s < inf:
                self._read_timeout_handle = self._loop.call_at(due_s, self._look)
        elif due_s < self._over_s:
            self._on_read_timeout()
        else:
            self._fail(TimeoutError())

    def data_received(self, data: bytes) -> None:
        """Bytes from the socket; none: the parser is to go on with what it has."""
        if data:
            if self._is_at_rest:  # nobody has asked: it would be taken for the answer of whoever asks next
                self.abort()
                return
            if self._is_in_head:
                self._read_timeout = self._between_s
                data = self._head_received(data)
                if not data:
                    return
            payload = self._payload
            if payload is not None and payload.is_eof():
                self._note_surplus()
                return
            data = self._without_surplus(data)
        payload = self._payload
        super().data_received(data)
        if payload is None or self._is_in_head:
            return
        if not payload.is_eof():
            self._watch_framing(payload, len(data))
            self._tell_reader(payload)
        elif self._has_chunked_surplus():
            self._note_surplus()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """The parser has read a head. One that only informs is nobody's; another follows it."""
        message, payload = data
        if not self._is_in_head:  # an answer behind the answer
            self._note_surplus()
            return
        if 100 <= message.code < 200 and message.code != 101:
            return
        self._is_in_head = False
        self._head.clear()
        self._left_bytes, self._last = None, b""
        if payload is not EMPTY_PAYLOAD and not message.chunked:
            length = message.headers.get("Content-Length", "")
            self._left_bytes = int(length) if length.isdecimal() else None
        super().feed_data(data, size)

    def _head_received(self, data: bytes) -> bytes:
        """Parse the head piecemeal, and no byte behind it; answers those."""
        while data and self._is_in_head:
            piece, before = data[:_PIECE_BYTES], bytes(self._head[-2:])
            found = _END_OF_HEAD.search(before + piece)
            if found is not None:
                piece = piece[: max(found.end() - len(before), 1)]
            data = data[len(piece) :]
            super().data_received(piece)
            if self._is_in_head:  # as it seldom is: a head mostly comes in one piece, and then need not be kept
                self._head += piece
                if len(self._head) > MAX_HEAD_BYTES:
                    self._give_up(HeadTooLong(bytes(self._head[:MAX_HEAD_BYTES])))
                    return b""
        return data

    def _without_surplus(self, data: bytes) -> bytes:
        """The bytes that belong to the body."""
        left = self._left_bytes
        if left is None:
            self._last = (self._last + data[-_LAST_BYTES:])[-_LAST_BYTES:]
            return data
        if len(data) > left:
            self._note_surplus()
            data = data[:left]
        self._left_bytes = left - len(data)
        return data

    def _has_chunked_surplus(self) -> bool:
        """A body in chunks has ended, and not with the last bytes received."""
        if self._left_bytes is not None:
            return False
        return self.exception() is not None or not self._last.endswith((b"\n\r\n", b"\n\n"))

    def _note_surplus(self) -> None:
        self.has_surplus = True
        self.force_close()

    def _watch_framing(self, payload: StreamReader, received: int) -> None:
        if payload.total_bytes != self._content_bytes:
            self._content_bytes, self._framing_bytes = payload.total_bytes, 0
            return
        self._framing_bytes += received
        if self._framing_bytes > MAX_HEAD_BYTES:
            error = HeadTooLong(b"")
            payload.set_exception(error)
            self._give_up(error)

    def _tell_reader(self, payload: StreamReader) -> None:
        """The parser has failed in the body: aiohttp tells who waits for a head, and lets who reads the body wait."""
        error = self.exception()
        if error is not None and payload.exception() is None:
            payload.set_exception(ClientPayloadError(str(error)), error)

    def _fail(self, error: Exception) -> None:
        """Tell who waits for the head, and who for the body."""
        self.set_exception(error)
        if self._payload is not None:
            self._payload.set_exception(error)

    def _give_up(self, error: HeadTooLong) -> None:
        self._is_in_head = False
        self._head.clear()
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()
