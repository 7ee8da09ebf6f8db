"""One request, and its answer on the way in: read up to its limits, cut where it goes beyond them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from crawler.fetching.answers import MAX_HEADERS, Answer, by_name
from crawler.fetching.requests import request_head
from crawler.fetching.response import Cut, Response
from crawler.network.wire import DIAL
from crawler.outcomes.failures import BadHttp, ProxyFailed
from crawler.outcomes.status import FIRST_HTTP_STATUS

if TYPE_CHECKING:
    from crawler.fetching.bodies import Body
    from crawler.fetching.options import FetchOptions, Limits
    from crawler.fetching.proxies import Proxy


#: What reading a body raises if the rest of it will not come.
_BREAKS = (aiohttp.ClientPayloadError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
_PROXY_AUTHENTICATION_REQUIRED = 407


class Exchange:
    """One URL asked for, once; with a `DIAL` of its own."""

    def __init__(self, url: str, body: Body, options: FetchOptions, limits: Limits, proxy: Proxy | None) -> None:
        self._url = url
        self._body = body
        self._options = options
        self._limits = limits
        self._proxy = proxy
        self._cuts: list[Cut] = []
        self._answer: Answer | None = None
        self._break: Exception | None = None  #: why the rest of the body will not come

    async def run(self, session: aiohttp.ClientSession, headers: dict[str, str], *, keep_broken: bool) -> None:
        """Ask and read, within the time. What is cut is kept, if the body had begun.

        A body that broke off is cut too with `keep_broken`, else it raises. Raises: what the libraries raise, ProxyFailed.
        """
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                answer = self._answer = await self._asked(session, headers)
                await self._read(answer)
                if self._break is not None:
                    if not keep_broken:
                        raise self._break
                    self._cut(Cut.DISCONNECT)
        except TimeoutError:
            if not self._body.size:
                raise
            self._cut(Cut.TIME)
        finally:
            if self._answer is not None:
                self._answer.release()

    @property
    def _forwarder(self) -> Proxy | None:
        """The proxy that takes the request itself, and may answer it itself; others only connect."""
        proxy = self._proxy
        return proxy if proxy is not None and not proxy.is_socks and self._url.startswith("http:") else None

    async def _asked(self, session: aiohttp.ClientSession, headers: dict[str, str]) -> Answer:
        """The answer's head. A kept connection that proves dead is worth another try at once (RFC 9112 section 9.3.1).

        A fresh one is not: that would be a fetch that the host's gate never saw. Ends, since a try takes a kept one away.
        """
        url, proxy = URL(self._url, encoded=True), self._proxy
        ways: dict[str, object] = {}
        if proxy is not None and not proxy.is_socks:
            ways = {"proxy": proxy.url, "proxy_headers": proxy.headers()}
        while True:
            try:
                answer = await session.get(url, headers=headers, allow_redirects=False, **ways)  # type: ignore[arg-type]
            except aiohttp.ClientConnectorError:
                raise
            except aiohttp.ClientHttpProxyError as error:
                if proxy is None or error.status != _PROXY_AUTHENTICATION_REQUIRED:
                    raise
                raise ProxyFailed(proxy.refusal) from error
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                if DIAL.get().is_fresh:
                    raise
            else:
                assert isinstance(answer, Answer)
                return answer

    async def _read(self, answer: Answer) -> None:
        """Read the body up to a limit; the rest is never read."""
        if answer.status < FIRST_HTTP_STATUS:
            raise BadHttp(f"{answer.status} is no HTTP status")
        proxy = self._forwarder
        if proxy is not None and answer.status == _PROXY_AUTHENTICATION_REQUIRED:
            raise ProxyFailed(proxy.refusal)
        if answer.is_head_cut:
            self._cuts.append(Cut.HEADERS)
        now_s = asyncio.get_running_loop().time
        began_s, began_bytes = now_s(), 0
        body, left, window_s = self._body, self._limits.max_body_bytes, self._options.rate_window_s
        while chunk := await self._next(answer):
            if len(chunk) > left:
                body.append(chunk[:left])
                self._break = None  # no more was wanted
                self._cut(Cut.LENGTH)
                return
            body.append(chunk)
            left -= len(chunk)
            passed_s = now_s() - began_s
            if passed_s >= window_s:
                if body.size - began_bytes < self._options.min_rate * passed_s:
                    self._cut(Cut.TIME)
                    return
                began_s, began_bytes = began_s + passed_s, body.size

    async def _next(self, answer: Answer) -> bytes:
        """The next bytes of the body, those that came before it broke off included; none at its end."""
        if self._break is not None:
            return b""
        try:
            return await answer.content.readany()
        except _BREAKS as error:
            self._break = error
            return answer.unread()

    def _cut(self, cut: Cut) -> None:
        """Something of the answer is missing; its connection is of no use any more."""
        self._cuts.append(cut)
        if self._answer is not None:
            self._answer.close()

    def response(self, start_s: float, end_s: float) -> Response:
        """What has been read."""
        answer = self._answer
        assert answer is not None
        headers, fields = answer.headers, answer.raw_headers
        if len(fields) > MAX_HEADERS:
            self._cuts.append(Cut.HEADERS)
            fields = fields[:MAX_HEADERS]
            headers = by_name(fields)
        version = answer.version
        return Response(
            url=self._url,
            status=answer.status,
            reason=answer.reason or "",
            version=f"{version.major}.{version.minor}" if version else "",
            headers=headers,
            raw_headers=fields,
            sent=partial(request_head, answer.request_info, is_absolute=self._forwarder is not None),
            body=self._body,
            cuts=tuple(self._cuts),
            address=answer.address if self._proxy is None else "",
            start_s=start_s,
            end_s=end_s,
        )
