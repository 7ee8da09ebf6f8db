"""One HTTP exchange: a request is sent, and its answer is read up to its limits and cut where it exceeds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD

from anabranch.crawler.fetch.capped import CappedConnection
from anabranch.crawler.fetch.connections import HeadTooLong, take_after_break, take_complete
from anabranch.crawler.fetch.repairs import STATUS_LINE, status_of, version_of
from anabranch.crawler.fetch.requests import without_credentials
from anabranch.crawler.fetch.response import Cut, PageHead, Response, header_fields
from anabranch.crawler.outcomes.failures import BadHttp, HostTakenOver, KeptConnectionClosed, ProxyRefused
from anabranch.crawler.outcomes.status import FIRST_HTTP_STATUS

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from multidict import CIMultiDictProxy

    from anabranch.crawler.fetch.bandwidth import Meter
    from anabranch.crawler.fetch.connections import ConnectAttempts, Connector, HttpConnection
    from anabranch.crawler.fetch.options import FetchLimits, FetchOptions
    from anabranch.crawler.fetch.repairs import Repair
    from anabranch.crawler.fetch.requests import HttpRequest
    from anabranch.crawler.fetch.response import Body

#: The most headers of an answer; the rest is cut.
MAX_HEADERS = 1000

_FORBIDDEN, _PROXY_AUTHENTICATION_REQUIRED = 403, 407

#: The errors of a body that breaks off.
_BREAKS = (aiohttp.ClientPayloadError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
#: The errors without a head. Over a kept connection they do not concern the URL.
_NO_HEAD = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, HttpProcessingError)


class ResponseHead(NamedTuple):
    """Status line and headers of an answer, and the stream of its body."""

    status: int
    reason: str  #: as sent
    version: tuple[int, int]  #: of HTTP
    headers: CIMultiDictProxy[str]
    raw_headers: tuple[tuple[bytes, bytes], ...]
    content: StreamReader


class HttpExchange:
    """One request and its answer. Use once: `run`, then `response`."""

    def __init__(
        self,
        request: HttpRequest,
        attempts: ConnectAttempts,
        body: Body,
        options: FetchOptions,
        limits: FetchLimits,
        may_send: Callable[[], bool] | None,
    ) -> None:
        """`attempts` records how a connection is made; `body` gets the answer's body; `may_send` is asked last, if given."""
        self._request = request
        self._attempts = attempts
        self._body = body
        self._options = options
        self._limits = limits
        self._may_send = may_send
        self._cuts: list[Cut] = []
        self._address = ""
        self._head: ResponseHead | None = None
        self._break: Exception | None = None  #: why the body broke off
        self._has_surplus = False
        self._received: tuple[bytes, ...] = ()
        self._repairs: tuple[Repair, ...] = ()
        self._meter: Meter | None = None

    async def run(
        self,
        connector: Connector,
        *,
        keep_broken: bool,
        wants_body: Callable[[PageHead], bool] | None = None,
        meter: Meter | None = None,
    ) -> None:
        """Send the request once and read the answer, within the time limit. A body that began is kept where it is cut.

        With `keep_broken` a body that broke off counts as cut, else the break of a 2xx is raised. A body is left unread, and
        its connection is closed, if `wants_body` denies; what it raises passes. `meter` bounds what is read; while it holds the
        answer up no time limit runs.
        Raises: aiohttp's errors, TimeoutError, HeadTooLong, ServiceAway, ProxyRefused, KeptConnectionClosed, HostTakenOver,
        BadHttp, StorageError.
        """
        deadline_s = asyncio.get_running_loop().time() + self._limits.timeout_s
        self._check_worker()
        origin = self._request.origin
        connection = connector.take_idle(origin.key)
        if connection is None:
            async with asyncio.timeout_at(deadline_s):  # a connection watches the deadline itself
                connection = await self._connect(connector)
        if meter is not None and isinstance(connection, CappedConnection):
            self._meter = meter
            connection.use(meter)
        try:
            await self._run_over(connection, deadline_s, wants_body, keep_broken=keep_broken)
        except _NO_HEAD as error:
            if self._head is not None or self._attempts.is_new:
                raise
            connector.distrust(origin.key)
            raise KeptConnectionClosed("no answer came over a connection that the server had kept") from error
        else:
            if connection.has_surplus and not self._attempts.is_new:
                connector.distrust(origin.key)
                raise KeptConnectionClosed("more than one answer came over a connection that the server had kept")
        finally:
            self._has_surplus = connection.has_surplus
            self._received, self._repairs = connection.received, connection.repairs
            is_complete = self._head is not None and self._head.content.is_eof() and not self._cuts
            connector.release(origin.key, connection, is_complete=is_complete)

    def _check_worker(self) -> None:
        if self._may_send is not None and not self._may_send():
            raise HostTakenOver("another worker may crawl this host by now")

    async def _connect(self, connector: Connector) -> HttpConnection:
        try:
            return await connector.open_connection(self._request.origin.connect_request, self._attempts)
        except aiohttp.ClientHttpProxyError as error:
            proxy = self._request.proxy
            if proxy is not None and error.status == _PROXY_AUTHENTICATION_REQUIRED:
                raise ProxyRefused(proxy.url, proxy.refusal) from error
            if proxy is not None and error.status == _FORBIDDEN:
                raise ProxyRefused(
                    proxy.url, "does not connect: its rules do not allow it (403)", is_rule=True
                ) from error
            raise

    async def _run_over(
        self,
        connection: HttpConnection,
        deadline_s: float,
        wants_body: Callable[[PageHead], bool] | None,
        *,
        keep_broken: bool,
    ) -> None:
        options = self._options
        self._address = connection.address
        self._check_worker()
        connection.send_request(self._request.data, deadline_s, options.first_byte_timeout_s, options.read_timeout_s)
        try:
            message, content = await connection.read()
            head = ResponseHead(
                message.code, message.reason, message.version, message.headers, message.raw_headers, content
            )
            self._accept(head)
            # An answer without a body, such as a 304, leaves nothing to decide.
            if wants_body is None or content.at_eof() or wants_body(self._page_head(head)):
                await self._read_body(content)
            else:
                self._cuts.append(Cut.ABORT)
        except HeadTooLong as error:
            cut_head = parse_cut_head(error.head)
            if cut_head is None:
                raise
            self._accept(cut_head)
            self._cuts.append(Cut.HEADERS)
        except TimeoutError:
            if not self._body.size:
                raise
            self._cuts.append(Cut.TIME)
        if self._break is not None:
            self._cut_by(self._break, connection.exception(), keep_broken=keep_broken)

    def _cut_by(self, error: Exception, fault: BaseException | None, *, keep_broken: bool) -> None:
        """Count a body that broke off as cut; raise the error, or the parser's fault, if the body counts."""
        if not keep_broken and self._head is not None and 200 <= self._head.status < 300:
            raise fault if isinstance(fault, HttpProcessingError) else error
        self._cuts.append(Cut.DISCONNECT)

    def _accept(self, head: ResponseHead) -> None:
        """Raises: BadHttp, ProxyRefused."""
        self._head = head
        if head.status < FIRST_HTTP_STATUS:
            raise BadHttp(f"{head.status} is no HTTP status")
        proxy = self._request.proxy
        if head.status == _PROXY_AUTHENTICATION_REQUIRED and proxy is not None and self._request.origin.is_forwarded:
            raise ProxyRefused(proxy.url, proxy.refusal)

    def _page_head(self, head: ResponseHead) -> PageHead:
        address = self._address if self._request.proxy is None else ""
        return PageHead(self._request.url, head.status, head.headers, address)

    async def _read_body(self, content: StreamReader) -> None:
        """Read the body while it comes fast enough, up to its limit; the rest is never read."""
        if whole := take_complete(content):  # as mostly: no clock is needed
            self._keep(whole)
            return
        now_s = self._now_s
        window_start_s, window_start_bytes = now_s(), 0
        body, window_s = self._body, self._options.rate_window_s
        while chunk := take_complete(content) or await self._read_chunk(content):
            if not self._keep(chunk):
                return
            passed_s = now_s() - window_start_s
            if passed_s >= window_s:
                if body.size - window_start_bytes < self._options.min_rate * passed_s:
                    self._cuts.append(Cut.TIME)
                    return
                window_start_s, window_start_bytes = window_start_s + passed_s, body.size

    def _now_s(self) -> float:
        """The time of the loop, without that for which a cap of bandwidth held the answer up."""
        return asyncio.get_running_loop().time() - (0.0 if self._meter is None else self._meter.waited_s)

    def _keep(self, chunk: bytes) -> bool:
        """Append to the body; False, and a cut, if it would exceed its limit."""
        left = self._limits.max_body_bytes - self._body.size
        if len(chunk) <= left:
            self._body.append(chunk)
            return True
        self._body.append(chunk[:left])
        self._break = None  # the rest was not wanted
        self._cuts.append(Cut.LENGTH)
        return False

    async def _read_chunk(self, content: StreamReader) -> bytes:
        """The next bytes of the body, including those that came before it broke off; empty at its end."""
        if self._break is not None or content.at_eof():
            return b""
        try:
            return await content.readany()
        except _BREAKS as error:
            self._break = error
            return take_after_break(content)

    def response(self, start_s: float, end_s: float, secrets: frozenset[bytes] | None = None) -> Response:
        """The answer that was read; start and end of the fetch in epoch seconds. `secrets`: as `Response.secrets`."""
        head = self._head
        assert head is not None
        headers, raw_headers = head.headers, head.raw_headers
        if max(len(raw_headers), len(self._received)) > MAX_HEADERS:
            self._cuts.append(Cut.HEADERS)
            raw_headers = raw_headers[:MAX_HEADERS]
            headers = header_fields(raw_headers)
        return Response(
            url=self._request.url,
            status=head.status,
            reason=head.reason,
            version=f"{head.version[0]}.{head.version[1]}",
            headers=headers,
            raw_headers=raw_headers,
            sent=partial(without_credentials, self._request.data, self._request.secret_fields),
            body=self._body,
            cuts=tuple(self._cuts),
            address=self._address if self._request.proxy is None else "",
            start_s=start_s,
            end_s=end_s,
            has_surplus=self._has_surplus,
            received=self._received[:MAX_HEADERS],
            repairs=self._repairs,
            secrets=secrets,
        )


def parse_cut_head(data: bytes) -> ResponseHead | None:
    """The status and the complete lines of a head without end; None if no status line came."""
    line = STATUS_LINE.match(data)
    if line is None:
        return None
    lines = data[line.end() :].split(b"\n", MAX_HEADERS + 1)[:-1]  # the last one is incomplete
    parted = (one.rstrip(b"\r").partition(b":") for one in lines)
    fields = tuple((name, value.strip()) for name, colon, value in parted if colon and name.strip())
    reason = line[3].strip().decode("utf-8", "surrogateescape")
    return ResponseHead(status_of(line), reason, version_of(line), header_fields(fields), fields, EMPTY_PAYLOAD)
