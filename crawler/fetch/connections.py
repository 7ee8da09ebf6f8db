"""HTTP/1.1 connections over aiohttp, bounded: one connection, the connector that keeps them, and the check of addresses.

The only module that uses private names of aiohttp (`tests/crawler/fetch/test_connections.py` tests each). What aiohttp lacks:

- It limits the length and number of headers, not their total, and discards a head that is too long. `HttpConnection` counts the
  bytes of a head and keeps them: the start of an endless one is archived. Trailers and chunk extensions are bounded likewise.
- A head or a chunk that aiohttp's parser refuses is read as browsers read it, see `repairs`. Its bytes are kept until it is
  accepted, and the transport is hidden from aiohttp, which would close it.
- Surplus bytes behind an answer would make aiohttp's parser discard it: they never reach it, and the connection is closed.
- The socket factory checks every address, since a name may resolve to any, and aiohttp asks no resolver for an IP literal. A
  proxy may have a private address; it resolves the names of hosts and must itself refuse private addresses.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD

from anabranch.crawler.fetch.addresses import is_public
from anabranch.crawler.fetch.proxy import connect_through_socks, system_message
from anabranch.crawler.fetch.repairs import ChunkReader, Repair, RepairedHead, is_chunked, may_be_head, repaired_head
from anabranch.crawler.outcomes.errors import TOO_MANY_FILES
from anabranch.crawler.outcomes.failures import FetchError, ServiceAway, proxy_service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import AddrInfoType
    from aiohttp.http import RawResponseMessage
    from aiohttp.streams import StreamReader

    from anabranch.crawler.fetch.connection_limits import IdleConnections
    from anabranch.crawler.fetch.dns import Resolver
    from anabranch.crawler.fetch.options import FetchOptions
    from anabranch.crawler.fetch.proxy import Proxy

#: The longest head of an answer, 1xx answers before it included; and the most framing without content.
MAX_HEAD_BYTES = 128 * 1024
#: A head is parsed in pieces of this size, so that it is cut near the limit whatever the packets.
_PIECE_BYTES = 16 * 1024
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_LINE_BREAKS = re.compile(rb"[\r\n]++")  # before a head: one piece, however many
#: The last bytes that show whether a chunked body ended with the empty line of its last chunk.
_LAST_BYTES = 3

#: How much of a body is buffered before reading from the socket pauses.
READ_BUFFER_BYTES = 64 * 1024

#: How aiohttp is to parse an answer.
_PARSING: Mapping[str, Any] = MappingProxyType(
    {
        "read_until_eof": True,
        "auto_decompress": False,
        "read_bufsize": READ_BUFFER_BYTES,
        "max_line_size": 2 * MAX_HEAD_BYTES,  # the bound on the whole head is lower
        "max_field_size": 2 * MAX_HEAD_BYTES,
        "max_headers": MAX_HEAD_BYTES // 4,  # more do not fit in
    }
)

#: Idle connections are kept for as long as a host usually rests between two fetches.
KEEP_ALIVE_S = 30.0
#: How long no connection to an origin is kept after a kept one proved dead, which cost a rest of its gate.
DISTRUST_S = 600.0
MAX_DISTRUSTED = 10_000


class HeadTooLong(Exception):
    """An answer's head exceeds `MAX_HEAD_BYTES`; `head` is its beginning, behind informational answers."""

    def __init__(self, head: bytes) -> None:
        super().__init__(f"headers beyond {MAX_HEAD_BYTES} bytes")
        self.head = head


class HttpConnection(ResponseHandler):
    """aiohttp's protocol object of one connection, with the bounds above and one timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[ResponseHandler], None]) -> None:
        """`on_lost` is called when the connection has been closed by either side."""
        super().__init__(loop)
        self.address = ""  #: IP address of the other end
        self.has_surplus = False  #: bytes came behind the answer
        self.has_old_tls = False  #: the server offers nothing else, see `old_tls_context`
        self._on_lost = on_lost
        self._head = bytearray()
        self._is_in_head = False
        self._may_end = False  #: what the parser reads now is the end of the head, or a repaired one
        self._is_idle = False  #: an exchange has ended, and no other has begun
        self._is_first = True  #: no exchange has ended
        self._read_timeout_s: float | None = None
        self._deadline_s = inf  #: loop time at which the exchange must have ended
        self._due_s = inf  #: loop time at which the timer fires: the deadline, or the end of the read timeout
        self._exchange_timer: asyncio.TimerHandle | None = None
        self._framing_bytes = 0  #: since the last content
        self._content_bytes = 0  #: content until then
        self._left_bytes: int | None = None  #: of a body with a Content-Length
        self._last = b""  #: the last bytes of a chunked body
        self._may_repair = False  #: the answer is a host's, not that of a proxy which is asked to connect
        self._fault: BaseException | None = None  #: the parser refused bytes, and they are not yet repaired
        self._final_from = 0  #: where the final answer begins in `_head`
        self._repaired: RepairedHead | None = None
        self._raw: list[bytes] | None = None  #: the first bytes of a chunked body, while they are few
        self._raw_bytes = 0
        self._chunks: ChunkReader | None = None  #: reads the body in the parser's place

    def note_old_tls(self) -> None:
        """Note that the connection was made with old TLS, because the server offers nothing else."""
        self.has_old_tls = True

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs that the answer needed, and the note of old TLS."""
        repaired = () if self._repaired is None else self._repaired.repairs
        chunks = () if self._chunks is None else (Repair.CHUNKS,)
        return (*repaired, *chunks, Repair.OLD_TLS) if self.has_old_tls else repaired + chunks

    @property
    def received(self) -> tuple[bytes, ...]:
        """All lines behind the status line of a repaired head, as received; empty if nothing of the head was repaired."""
        return () if self._repaired is None else self._repaired.received

    def send_request(
        self, request: bytes, deadline_s: float, first_byte_timeout_s: float | None, read_timeout_s: float | None
    ) -> None:
        """Send a request; `read` then returns the final answer's head and body stream.

        It has no body, so it is one write, which never waits. The exchange must end by the loop time `deadline_s`, the first
        byte come within `first_byte_timeout_s`, each further read within `read_timeout_s` (None = no limit). Raises:
        ServerDisconnectedError.
        """
        transport = self.transport
        if transport is None:
            raise aiohttp.ServerDisconnectedError
        self.set_response_params(read_timeout=first_byte_timeout_s, **_PARSING)
        self._may_repair = True
        self._read_timeout_s = read_timeout_s
        self._deadline_s = deadline_s
        transport.write(request)
        self._reschedule_timeout()

    def set_response_params(self, **params: Any) -> None:
        """Prepare for an answer's head. aiohttp calls this too, for its CONNECT to a proxy."""
        self._head.clear()
        self._is_in_head = True
        self._is_idle = self.has_surplus = False
        self._framing_bytes = self._content_bytes = self._final_from = 0
        self._may_repair = False
        self._fault = self._repaired = self._raw = self._chunks = None
        super().set_response_params(**params)

    def become_idle(self) -> None:
        """The exchange has ended: nothing is expected, and received bytes close the connection."""
        self._is_idle, self._is_first = True, False
        self._deadline_s = self._due_s = inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""

    def connection_lost(self, exc: BaseException | None) -> None:
        """asyncio: the connection is closed. A body that is complete stays readable."""
        self._on_lost(self)
        if self._chunks is not None and self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(aiohttp.ClientPayloadError("the last chunk is missing"))
            self._payload = None
        if self._payload is not None and self._payload.is_eof():
            self._payload = None  # else aiohttp would set an exception on it
        super().connection_lost(exc)
        if self._exchange_timer is not None:
            self._exchange_timer.cancel()
            self._exchange_timer = None

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the socket. aiohttp calls it without bytes to continue parsing."""
        if self._chunks is not None:
            self._feed_chunks(self._chunks, data)
            return
        if data:
            if self._is_idle:  # it would be taken for the answer to the next request
                self.abort()
                return
            if self._is_in_head:
                self.read_timeout = self._read_timeout_s
                data = self._feed_head(data)
                if not data:
                    return
            payload = self._payload
            if payload is not None and payload.is_eof():
                self._note_surplus()
                return
            data = self._without_surplus(data)
        payload, transport = self._payload, self.transport
        if self._raw is not None:
            self.transport = None
        super().data_received(data)
        self.transport = transport
        if self._fault is not None:
            self._repair_chunks()
        elif payload is not None and not self._is_in_head:
            self._check_body(payload, len(data))

    def _check_body(self, payload: StreamReader, received: int) -> None:
        """After so many bytes were parsed as a part of the body: check its bounds, and whether it ended before them."""
        error = self.exception()
        if payload.is_eof():
            self._raw = None
            if self._left_bytes is None and (error is not None or not self._last.endswith((b"\n\r\n", b"\n\n"))):
                self._note_surplus()  # a chunked body ended before the last bytes
            return
        if payload.total_bytes != self._content_bytes:
            self._content_bytes, self._framing_bytes = payload.total_bytes, 0
        else:
            self._framing_bytes += received
            if self._framing_bytes > MAX_HEAD_BYTES:
                error = HeadTooLong(b"")
                payload.set_exception(error)
                self._give_up(error)
        if error is not None and payload.exception() is None:
            # The parser failed in the body: aiohttp informs the reader of a head, and lets the body's reader wait.
            payload.set_exception(aiohttp.ClientPayloadError(str(error)), error)

    def _feed_head(self, data: bytes) -> bytes:
        """Parse the head piece by piece, and return the bytes behind it."""
        while data and self._is_in_head:
            piece, before = data[:_PIECE_BYTES], bytes(self._head[max(len(self._head) - 2, self._final_from) :])
            found = (None if before else _LINE_BREAKS.match(piece)) or _END_OF_HEAD.search(before + piece)
            if found is not None:
                piece = piece[: max(found.end() - len(before), 1)]
            data = data[len(piece) :]
            self._parse_head(piece, is_whole=found is not None)
            if self._is_in_head:  # seldom: most heads come in one piece, which is not copied
                self._head += piece
                if len(self._head) > MAX_HEAD_BYTES:
                    self._give_up(HeadTooLong(bytes(self._head[self._final_from : MAX_HEAD_BYTES])))
                    return b""
                if self._fault is not None and not self._repair_head(is_whole=found is not None):
                    return b""
                if found is not None:
                    self._final_from = len(self._head)  # an informational answer, or line breaks, if the head goes on
        return data

    def _parse_head(self, piece: bytes, *, is_whole: bool) -> None:
        """Let the parser read a piece, of which only the last byte may end the head, without closing the transport."""
        transport, self.transport = self.transport, None
        for part, self._may_end in ((piece[:-1], False), (piece[-1:], is_whole)):
            if self._fault is None:
                super().data_received(part)
        self.transport = transport

    def _repair_head(self, *, is_whole: bool) -> bool:
        """Parse a head that was refused in its repaired form, once it is whole; False if it cannot be read."""
        start, fault = self._final_from, self._fault
        beginning = bytes(self._head[start : start + _PIECE_BYTES])
        is_head = self._may_repair and may_be_head(beginning, is_first=self._is_first)
        if is_head and not is_whole:
            return True
        repaired = repaired_head(bytes(self._head[start:])) if is_head else None
        if repaired is None:
            self._give_up(fault)
            return False
        self._fault = None
        super().set_response_params(read_timeout=self._read_timeout_s, **_PARSING)
        self.force_close()
        if 100 <= repaired.status < 200 and repaired.status != 101:
            return True
        self._repaired, self._may_end = repaired, True
        super().data_received(repaired.data)
        if self._is_in_head:  # the parser refuses this form, too
            self._give_up(self._fault or fault)
        return not self._is_in_head

    def set_exception(self, exc: BaseException, *causes: BaseException) -> None:
        """aiohttp: the parser refuses bytes, or the connection fails. A fault that may be repaired is not reported yet."""
        if isinstance(exc, HttpProcessingError) and (self._is_in_head or self._raw is not None):
            self._fault = exc
        else:
            super().set_exception(exc, *causes)

    def _repair_chunks(self) -> None:
        """Read a body once more from its start, without the parser, which refused a chunk, or surplus bytes."""
        raw, payload, self._raw = self._raw or (), self._payload, None
        assert payload is not None
        if payload.is_eof():
            self._fault = None
            self._note_surplus()
            return
        self._chunks = ChunkReader(payload.total_bytes)
        self.force_close()
        self._feed_chunks(self._chunks, b"".join(raw))

    def _feed_chunks(self, chunks: ChunkReader, data: bytes) -> None:
        """Give the body's reader the content in these bytes, without what the parser has given it already."""
        payload = self._payload
        if payload is None or payload.is_eof() or not data:
            self.has_surplus |= bool(data)
            return
        self._reschedule_timeout()
        if content := chunks.feed(data):
            payload.feed_data(content)
        if chunks.fault:
            fault, self._fault = self._fault or HttpProcessingError(message=chunks.fault), None
            super().set_exception(fault)
            payload.set_exception(aiohttp.ClientPayloadError(chunks.fault), fault)
            if self.transport is not None:
                self.transport.close()
            return
        self._fault = None
        if chunks.is_ended:
            payload.feed_eof()
            if chunks.has_surplus:
                self._note_surplus()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """aiohttp: the parser has read a head. Informational answers are skipped; the final one follows them."""
        message, payload = data
        if not self._is_in_head:  # another answer behind the answer
            self._note_surplus()
            return
        if 100 <= message.code < 200 and message.code != 101:
            return
        is_odd = "Transfer-Encoding" in message.headers and not message.chunked and is_chunked(message.raw_headers)
        if is_odd or not self._may_end:  # `chunked, x`; an end that the parser takes for one, such as `X:` CR CR LF
            self._fault = HttpProcessingError(message="browsers read another head than the parser")
            return
        self._is_in_head = False
        self._head.clear()
        self._left_bytes, self._last = None, b""
        if payload is not EMPTY_PAYLOAD:
            self._raw, self._raw_bytes = [] if message.chunked else None, 0
            length = message.headers.get("Content-Length", "")
            self._left_bytes = int(length.lstrip("0") or 0) if length.isdecimal() else None  # int() bounds the digits
        super().feed_data(data, size)

    def _without_surplus(self, data: bytes) -> bytes:
        """The bytes that belong to the body."""
        left = self._left_bytes
        if left is None:
            self._last = (self._last + data[-_LAST_BYTES:])[-_LAST_BYTES:]
            if self._raw is not None:
                self._raw_bytes += len(data)
                if self._raw_bytes <= READ_BUFFER_BYTES:  # more might pause the transport, which is hidden as long
                    self._raw.append(data)
                else:
                    self._raw = None
            return data
        if len(data) > left:
            self._note_surplus()
            data = data[:left]
        self._left_bytes = left - len(data)
        return data

    def _note_surplus(self) -> None:
        self.has_surplus = True
        self.force_close()

    def _give_up(self, error: BaseException | None) -> None:
        """The answer cannot be read, or not to its end."""
        assert error is not None
        self._is_in_head, self._fault = False, None
        self._head.clear()
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()

    def _reschedule_timeout(self) -> None:
        """aiohttp: a read has happened. One timer serves all reads and the deadline; aiohttp would make one for each read."""
        self._due_s = self._deadline_s
        read_timeout_s = self.read_timeout
        if read_timeout_s is not None:
            self._due_s = min(self._due_s, self._loop.time() + read_timeout_s)
        if self._due_s < inf and (self._exchange_timer is None or self._exchange_timer.when() > self._due_s):
            if self._exchange_timer is not None:
                self._exchange_timer.cancel()
            self._exchange_timer = self._loop.call_at(self._due_s, self._on_timer)

    def _drop_timeout(self) -> None:
        """aiohttp: no read is expected. The deadline holds on, and a timer that is running fires without effect."""
        self._due_s = self._deadline_s

    def _on_timer(self) -> None:
        self._exchange_timer = None
        if self._due_s > self._loop.time():
            if self._due_s < inf:
                self._exchange_timer = self._loop.call_at(self._due_s, self._on_timer)
            return
        is_silent = self._due_s < self._deadline_s
        error = aiohttp.SocketTimeoutError("Timeout on reading data from socket") if is_silent else TimeoutError()
        self.set_exception(error)  # for who waits for the head
        if self._payload is not None:
            self._payload.set_exception(error)  # for who reads the body


def take_complete(content: StreamReader) -> bytes:
    """The rest of a body that is complete, as it mostly is with the head; else empty, and the caller has to wait."""
    if not content.is_eof() or content.at_eof():
        return b""
    pieces = content._buffer  # noqa: SLF001 - `read_nowait` resumes the parser for each piece (1 % of a page's CPU time)
    whole = b"".join(pieces)
    pieces.clear()
    return whole


def take_after_break(content: StreamReader) -> bytes:
    """The received bytes of a body before it broke off."""
    return content._read_nowait(-1)  # noqa: SLF001 - `read_nowait` raises the break


@dataclass(slots=True)
class ConnectAttempts:
    """The attempts to connect for one fetch. The connector records them; they explain a failure."""

    proxy: str = ""  #: URL of the proxy that the connection goes to, without credentials; empty = to the host itself
    is_new: bool = False  #: a connection was made; else an idle one was used
    sockets: int = 0  #: sockets made to allowed addresses
    refused: str = ""  #: the last address that was refused
    has_old_tls: bool = False  #: the server has refused all else
    lacks_files: bool = False  #: the last socket could not be made: too many files are open

    @property
    def is_proxied(self) -> bool:
        """The connection goes to a proxy."""
        return bool(self.proxy)

    def note_new(self) -> None:
        """No idle connection could be used."""
        self.is_new = True

    def note_old_tls(self) -> None:
        """Note that the server offers old TLS only."""
        self.has_old_tls = True

    def note_socket(self) -> None:
        """A socket was made to an allowed address."""
        self.sockets += 1
        self.lacks_files = False

    def note_no_socket(self, error: OSError) -> None:
        """The system made no socket."""
        self.lacks_files = error.errno in TOO_MANY_FILES

    def note_refused(self, address: str) -> None:
        """An address may not be connected to."""
        self.refused = address


#: The attempts of the fetch under way in this task (and in the tasks that race its addresses).
_ATTEMPTS: ContextVar[ConnectAttempts] = ContextVar("attempts")

#: OpenSSL's reasons for which a handshake with a server of old TLS ends.
_OLD_TLS = re.compile(
    "SSLV3_ALERT_HANDSHAKE_FAILURE|TLSV1_ALERT_INSUFFICIENT_SECURITY|DH_KEY_TOO_SMALL|UNSAFE_LEGACY_RENEGOTIATION_DISABLED"
)


def _may_want_old_tls(error: OSError) -> bool:
    """Whether a handshake may have failed because the server has old TLS only. Some servers just close the connection."""
    return isinstance(error, ConnectionResetError) or bool(_OLD_TLS.fullmatch(getattr(error, "reason", None) or ""))


@cache  # it takes 30 ms, and few crawls meet such a server
def old_tls_context(*, verify: bool) -> ssl.SSLContext:
    """TLS 1.2 and later, with RSA key exchange, Diffie-Hellman of 1,024 bits and SHA-1. Certificates are checked as always."""
    context = ssl.create_default_context() if verify else ssl._create_unverified_context()  # noqa: S323, SLF001 - by the order
    context.set_ciphers("DEFAULT:@SECLEVEL=1")
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0x4)  # Python 3.12 names it
    return context


def socket_factory(options: FetchOptions) -> Callable[[AddrInfoType], socket.socket]:
    """A function that makes the socket for an address; it raises OSError for a forbidden one."""
    sources = {socket.AF_INET6 if ":" in address else socket.AF_INET: address for address in options.bind}
    families = [family for family, is_on in ((socket.AF_INET, options.ipv4), (socket.AF_INET6, options.ipv6)) if is_on]

    def make(info: AddrInfoType) -> socket.socket:
        family, kind, proto, _, address = info
        host, attempts = str(address[0]), _ATTEMPTS.get()
        # OSErrors, since aiohttp collects those and tries the next address.
        if family not in families or (sources and family not in sources):
            raise OSError(errno.EAFNOSUPPORT, f"{host} is of a family that the order has switched off")
        if not (options.allow_private or attempts.is_proxied or is_public(host)):
            attempts.note_refused(host)
            raise OSError(errno.EACCES, f"{host} is not a public address")
        try:
            made = socket.socket(family, kind, proto)
        except OSError as error:
            attempts.note_no_socket(error)
            raise
        attempts.note_socket()
        if sources:  # they were tried when the crawl began, but an address may go, and its ports may be used up
            try:
                made.bind((sources[socket.AddressFamily(family)], 0))
            except OSError:
                made.close()
                raise
        return made

    return make


class _HostResolver(AbstractResolver):
    """aiohttp's interface to our resolver. The resolver's errors are no OSErrors, so they pass through aiohttp unchanged."""

    def __init__(self, resolver: Resolver) -> None:
        self._dns = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family  # both families are wanted: aiohttp races them (RFC 8305)
        return [
            ResolveResult(
                hostname=host,
                host=address.host,
                port=address.port or port,
                family=address.family,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._dns.resolve(host)
        ]

    async def close(self) -> None:
        """Do nothing: the caller closes the resolver."""


class Connector(aiohttp.TCPConnector):
    """Makes and keeps connections, directly or through an HTTP proxy. `release` gives one back. Does not close the resolver."""

    connection_class: type[HttpConnection] = HttpConnection  #: of its connections

    def __init__(self, resolver: Resolver, options: FetchOptions, max_busy: int, idle: IdleConnections) -> None:
        """`max_busy` bounds the connections with a fetch under way; more fetches wait; 0 = no limit."""
        super().__init__(
            limit=max_busy,
            resolver=_HostResolver(resolver),
            use_dns_cache=False,
            keepalive_timeout=KEEP_ALIVE_S,
            socket_factory=socket_factory(options),
            ssl=options.tls_verify,
        )
        self._may_use_old_tls, self._verifies = options.tls_old, options.tls_verify
        self._idle = idle
        self._distrusted: OrderedDict[ConnectionKey, float] = OrderedDict()  #: origin -> until when, oldest first
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout_s)
        new_connection = partial(self.connection_class, loop=self._loop, on_lost=idle.discard)
        self._factory = cast("partial[ResponseHandler]", new_connection)

    def take_idle(self, key: ConnectionKey) -> HttpConnection | None:
        """An idle connection to this origin that is still open, if there is one. O(1) for each that is closed."""
        waiting = self._conns.get(key)
        if waiting is None:
            return None
        found, oldest_s = None, monotonic() - KEEP_ALIVE_S
        while waiting and found is None:
            connection, since_s = waiting.popleft()
            self._idle.discard(connection)
            if connection.is_connected() and since_s >= oldest_s:
                self._acquired.add(connection)
                found = cast("HttpConnection", connection)
            else:
                connection.close()
        if not waiting:
            del self._conns[key]
        return found

    async def open_connection(
        self, make_request: Callable[[], aiohttp.ClientRequest], attempts: ConnectAttempts
    ) -> HttpConnection:
        """A connection after TLS and CONNECT; may wait for a free one. A server of old TLS is asked a second time.

        Raises: ServiceAway, ProxyRefused, ConnectFailed behind a proxy; aiohttp's and the resolver's errors.
        """
        token, request = _ATTEMPTS.set(attempts), make_request()
        try:
            try:
                owner = await self.connect(request, [], self._timeout)
            except aiohttp.ClientConnectorError as error:
                if not (self._may_use_old_tls and request.is_ssl() and _may_want_old_tls(error.os_error)):
                    raise
                attempts.note_old_tls()
                owner = await self.connect(make_request(), [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}") from error
        finally:
            _ATTEMPTS.reset(token)
        connection, owner._protocol = owner.protocol, None  # noqa: SLF001 - else aiohttp's object would close it
        assert isinstance(connection, HttpConnection)
        if attempts.has_old_tls:  # without it, a kept connection may have come, which knows
            connection.note_old_tls()
        return connection

    def release(self, key: ConnectionKey, connection: HttpConnection, *, is_complete: bool) -> None:
        """Give a connection back. It is kept if the whole answer was read (`is_complete`) and its origin is trusted."""
        is_distrusted = bool(self._distrusted) and self._distrusted.get(key, 0.0) > monotonic()
        self._release(key, connection, should_close=is_distrusted or not is_complete)

    def distrust(self, key: ConnectionKey) -> None:
        """A kept connection to this origin proved dead: close its idle ones, and keep none for `DISTRUST_S`."""
        for connection, _ in self._conns.pop(key, ()):
            self._idle.discard(connection)
            connection.close()
        self._distrusted.pop(key, None)
        self._distrusted[key] = monotonic() + DISTRUST_S
        if len(self._distrusted) > MAX_DISTRUSTED:
            self._distrusted.popitem(last=False)

    def _close_idle(self, key: ConnectionKey, connection: ResponseHandler) -> None:
        """O(idle connections of its origin), mostly O(1): the oldest is the first."""
        waiting = self._conns.get(key)
        if waiting is not None:  # else aiohttp has closed it for its age, and `on_lost` will be called
            for place, (one, _) in enumerate(waiting):
                if one is connection:
                    del waiting[place]
                    break
            if not waiting:
                del self._conns[key]
        connection.abort()

    def _get_ssl_context(self, req: aiohttp.ClientRequest) -> ssl.SSLContext | None:
        usual = super()._get_ssl_context(req)
        is_usual = usual is None or not _ATTEMPTS.get().has_old_tls
        return usual if is_usual else old_tls_context(verify=self._verifies)

    async def _create_connection(self, req: aiohttp.ClientRequest, *args: Any) -> ResponseHandler:
        _ATTEMPTS.get().note_new()
        return await super()._create_connection(req, *args)

    async def _create_direct_connection(
        self, *args: Any, client_error: type[Exception] = aiohttp.ClientConnectorError, **kwargs: Any
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """Connect to a host or, with a `client_error` of its own, to an HTTP proxy, whose failure is not the host's."""
        made = super()._create_direct_connection(*args, client_error=client_error, **kwargs)
        if client_error is not aiohttp.ClientProxyConnectionError:
            return await made
        try:
            return await made
        except (aiohttp.ClientError, TimeoutError, FetchError) as error:
            why = system_message(error) or str(error) or "it was too slow"
            raise ServiceAway(proxy_service(_ATTEMPTS.get().proxy), f"it cannot be reached: {why}") from error

    async def _get(self, key: ConnectionKey, traces: list[Any]) -> Connection | None:
        del traces
        connection = self.take_idle(key)
        return None if connection is None else Connection(self, key, connection, self._loop)

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        super()._release(key, protocol, should_close=should_close)
        if protocol.transport is not None and not self.closed:  # it was not closed, so it is kept
            assert isinstance(protocol, HttpConnection)
            protocol.become_idle()
            self._idle.add(protocol, partial(self._close_idle, key, protocol))


class SocksConnector(Connector):
    """Makes and keeps connections through one SOCKS5 proxy, which resolves the names."""

    def __init__(
        self, resolver: Resolver, options: FetchOptions, max_busy: int, idle: IdleConnections, proxy: Proxy
    ) -> None:
        super().__init__(resolver, options, max_busy, idle)
        self._connect = partial(connect_through_socks, proxy, resolver.resolve, socket_factory(options))

    async def _resolve_host(self, host: str, port: int, traces: Any = None) -> list[ResolveResult]:
        """The name itself: the proxy resolves it."""
        del traces
        return [ResolveResult(hostname=host, host=host, port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: list[AddrInfoType],
        req: aiohttp.ClientRequest,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the library's signature
        **kwargs: Any,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        host, port = str(addr_infos[0][4][0]), int(addr_infos[0][4][1])
        connected = await self._connect(host, port, timeout.sock_connect)
        return await self._wrap_existing_connection(*args, req=req, timeout=timeout, sock=connected, **kwargs)
