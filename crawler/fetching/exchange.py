"""One request, and its answer on the way in: read up to its limits, cut where it goes beyond them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from anabranch.crawler.fetching.answers import MAX_HEADERS, Answer, answer_of, by_name, cut_answer
from anabranch.crawler.fetching.requests import without_credentials
from anabranch.crawler.fetching.response import Cut, Response
from anabranch.crawler.network.wire import HeadTooLong
from anabranch.crawler.outcomes.failures import BadHttp, KeptConnectionClosed, ProxyFailed
from anabranch.crawler.outcomes.status import FIRST_HTTP_STATUS

if TYPE_CHECKING:
    from anabranch.crawler.fetching.bodies import Body
    from anabranch.crawler.fetching.options import FetchOptions, Limits
    from anabranch.crawler.fetching.origins import Origin
    from anabranch.crawler.fetching.proxies import Proxy
    from anabranch.crawler.network.connector import Connector
    from anabranch.crawler.network.wire import Dial, Wire

#: What reading a body raises if the rest of it will not come.
_BREAKS = (aiohttp.ClientPayloadError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
#: What reading a head raises if there is none. Over a kept connection that tells nothing of the URL.
_NO_ANSWERS = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, HttpProcessingError)
_PROXY_AUTHENTICATION_REQUIRED = 407


class Asking(NamedTuple):
    """What is sent, and to whom."""

    url: str
    request: bytes  #: all of it
    proxy: Proxy | None
    origin: Origin


class Exchange:
    """One URL asked for, once."""

    def __init__(self, asking: Asking, dial: Dial, body: Body, options: FetchOptions, limits: Limits) -> None:
        """`dial` is told what becomes of a connection that has to be made."""
        self._asking = asking
        self._dial = dial
        self._body = body
        self._options = options
        self._limits = limits
        self._cuts: list[Cut] = []
        self._address = ""
        self._answer: Answer | None = None
        self._break: Exception | None = None  #: why the rest of the body will not come
        self._has_surplus = False

    async def run(self, connector: Connector, *, keep_broken: bool) -> None:
        """Ask and read, within the time. What is cut is kept, if the body had begun.

        A body that broke off is cut too with `keep_broken`, else it raises. The request is sent once: the host may have read
        it, so sending it again has to wait for the host's gate.

        Raises: what the libraries raise, ProxyFailed, KeptConnectionClosed.
        """
        over_s = asyncio.get_running_loop().time() + self._limits.timeout_s
        key = self._asking.origin.key
        wire = connector.kept(key)
        if wire is None:
            async with asyncio.timeout_at(over_s):  # over a connection its wire sees to the time
                wire = await self._connected(connector)
        try:
            await self._run_over(wire, over_s, keep_broken=keep_broken)
        except _NO_ANSWERS as error:
            if self._answer is not None or self._dial.is_fresh:
                raise
            connector.distrust(key)
            raise KeptConnectionClosed("no answer came over a connection that the server had kept") from error
        else:
            if wire.has_surplus and not self._dial.is_fresh:
                connector.distrust(key)
                raise KeptConnectionClosed("more than one answer came over a connection that the server had kept")
        finally:
            self._has_surplus = wire.has_surplus
            connector.leave(key, wire, is_over=self._is_over)

    async def _connected(self, connector: Connector) -> Wire:
        try:
            return await connector.connected(self._asking.origin.connecting(), self._dial)
        except aiohttp.ClientHttpProxyError as error:
            proxy = self._asking.proxy
            if proxy is None or error.status != _PROXY_AUTHENTICATION_REQUIRED:
                raise
            raise ProxyFailed(proxy.refusal) from error

    async def _run_over(self, wire: Wire, over_s: float, *, keep_broken: bool) -> None:
        options = self._options
        self._address = wire.address
        wire.ask(self._asking.request, over_s, options.first_byte_timeout_s, options.read_timeout_s)
        try:
            await self._read(answer_of(*await wire.read()))
        except HeadTooLong as error:
            cut = cut_answer(error.head)
            if cut is None:
                raise
            await self._read(cut)
        except TimeoutError:
            if not self._body.size:
                raise
            self._cuts.append(Cut.TIME)
        if self._break is not None:
            if not keep_broken:
                fault = wire.exception()
                raise fault if isinstance(fault, HttpProcessingError) else self._break
            self._cuts.append(Cut.DISCONNECT)

    @property
    def _is_over(self) -> bool:
        """The whole answer has come, and all of it was wanted."""
        return self._answer is not None and self._answer.content.is_eof() and not self._cuts

    @property
    def _forwarder(self) -> Proxy | None:
        """The proxy that takes the request itself, and may answer it itself; others only connect."""
        proxy = self._asking.proxy
        return proxy if proxy is not None and not proxy.is_socks and self._asking.url.startswith("http:") else None

    async def _read(self, answer: Answer) -> None:
        """Read the body up to a limit; the rest is never read."""
        self._answer = answer
        if answer.status < FIRST_HTTP_STATUS:
            raise BadHttp(f"{answer.status} is no HTTP status")
        if answer.status == _PROXY_AUTHENTICATION_REQUIRED and (proxy := self._forwarder) is not None:
            raise ProxyFailed(proxy.refusal)
        if answer.is_head_cut:
            self._cuts.append(Cut.HEADERS)
        elif whole := answer.at_hand():
            self._take(whole)
        else:
            await self._read_on(answer)

    async def _read_on(self, answer: Answer) -> None:
        """Read a body that comes by and by, as long as it comes fast enough."""
        now_s = asyncio.get_running_loop().time
        began_s, began_bytes = now_s(), 0
        body, window_s = self._body, self._options.rate_window_s
        while chunk := answer.at_hand() or await self._next(answer):
            if not self._take(chunk):
                return
            passed_s = now_s() - began_s
            if passed_s >= window_s:
                if body.size - began_bytes < self._options.min_rate * passed_s:
                    self._cuts.append(Cut.TIME)
                    return
                began_s, began_bytes = began_s + passed_s, body.size

    def _take(self, chunk: bytes) -> bool:
        """Keep the next bytes; False, and a cut, if the body has become longer than it may be."""
        left = self._limits.max_body_bytes - self._body.size
        if len(chunk) <= left:
            self._body.append(chunk)
            return True
        self._body.append(chunk[:left])
        self._break = None  # no more was wanted
        self._cuts.append(Cut.LENGTH)
        return False

    async def _next(self, answer: Answer) -> bytes:
        """The next bytes of the body, those that came before it broke off included; none at its end."""
        if self._break is not None or answer.content.at_eof():
            return b""
        try:
            return await answer.content.readany()
        except _BREAKS as error:
            self._break = error
            return answer.unread()

    def response(self, start_s: float, end_s: float) -> Response:
        """What has been read."""
        answer = self._answer
        assert answer is not None
        headers, fields = answer.headers, answer.raw_headers
        if len(fields) > MAX_HEADERS:
            self._cuts.append(Cut.HEADERS)
            fields = fields[:MAX_HEADERS]
            headers = by_name(fields)
        return Response(
            url=self._asking.url,
            status=answer.status,
            reason=answer.reason,
            version=f"{answer.version[0]}.{answer.version[1]}",
            headers=headers,
            raw_headers=fields,
            sent=partial(without_credentials, self._asking.request),
            body=self._body,
            cuts=tuple(self._cuts),
            address=self._address if self._asking.proxy is None else "",
            start_s=start_s,
            end_s=end_s,
            has_surplus=self._has_surplus,
        )
