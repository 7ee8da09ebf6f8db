"""The fetcher: a URL in, a response or a `FetchError` out. Redirects are not followed (they are links)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import aiohttp
import structlog
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from crawler.fetching.bodies import Body, Scratch
from crawler.fetching.cookies import Cookies
from crawler.fetching.decoding import CODINGS
from crawler.fetching.kinds import FOREIGN, failure_of, one_line
from crawler.fetching.options import ACCEPT, FetchOptions, Site, Validators, is_sendable
from crawler.fetching.response import Cut, Response
from crawler.fetching.sites import Sites, SiteSettings
from crawler.network.addresses import ip_literal
from crawler.network.connector import Connector, Network, is_public
from crawler.network.socks import SocksConnector, SocksProxy
from crawler.network.wire import DIAL, MAX_HEAD_BYTES, MAX_HEADER_LINES, Dial, HeadTooLong
from crawler.outcomes.failures import AddressRefused, ConnectionLost, FetchError
from crawler.outcomes.status import FIRST_HTTP_STATUS

if TYPE_CHECKING:
    from aiohttp.client_middlewares import ClientHandlerType
    from aiohttp.connector import Connection

    from crawler.fetching.proxies import Proxy
    from crawler.network.dns import Resolver

log = structlog.get_logger(__name__)

#: Most headers of an answer; the rest is cut.
MAX_HEADERS = 1000

#: How much of a body waits in a connection before the server is made to wait.
READ_BUFFER_BYTES = 64 * 1024

_FOREIGN = tuple(FOREIGN)

#: Headers that are never shown: credentials.
_SECRET = frozenset({"authorization", "proxy-authorization"})

_STATUS_LINE = re.compile(rb"HTTP/(\d)\.(\d) (\d{3})(?: ([^\r\n]*))?\r?\n")
_INFORMATIONAL = re.compile(rb"(?:HTTP/1\.[01] 1(?!01)\d\d[^\n]*\n(?:[^\r\n][^\n]*\n)*\r?\n)+")


class Fetcher:
    """Fetches URLs over kept connections. Built inside a running loop; serves any number of workers.

    Each fetch ends within its time; a body is cut at its limit and at the time, and kept. Addresses that are not
    public are refused unless the options allow them. `clock` gives epoch seconds. The resolver stays the caller's to
    close, after the fetcher.
    """

    def __init__(
        self,
        options: FetchOptions,
        *,
        resolver: Resolver,
        scratch: Scratch,
        clock: Callable[[], float],
        sites: Iterable[Site] = (),
    ) -> None:
        """Raises: OrderError for sites that make no sense, or a password's variable that is not set."""
        self._options = options
        self._resolver = resolver
        self._scratch = scratch
        self._clock = clock
        self._sites = Sites(options, sites)
        self._cookies = Cookies()
        self._sessions: dict[Proxy | None, aiohttp.ClientSession] = {}
        if not options.tls_verify:
            log.warning("certificates are not verified: anybody on the way may answer in a host's name")

    async def get(self, url: str, *, conditional: Validators | None = None, via: str | None = None) -> Response:
        """Fetch a canonical URL with GET; its bytes are sent unchanged, its host is the Host header.

        `conditional` asks for the page only if it has changed (else 304, an answer); `via` is the page it was found on, told
        only if the options say so. Whoever gets the response closes its body.

        Raises: FetchError subclasses, with `start_s` and `end_s`; StorageError if a large body cannot be kept; CancelledError.
        """
        start_s = self._clock()
        settings = self._sites.of(url)
        dial = Dial(is_proxied=settings.proxy is not None, first_byte_s=self._options.first_byte_timeout_s)
        token = DIAL.set(dial)
        body = self._scratch.body()
        try:
            headers = self._headers(url, settings, conditional, via)
            return await self._answer(url, settings, headers, body, start_s)
        except FetchError as error:
            body.close()
            error.timed(start_s, self._clock())
            raise
        except _FOREIGN as error:
            body.close()
            raise failure_of(error, dial, self._options.timeout_s).timed(start_s, self._clock()) from error
        except BaseException:
            body.close()
            raise
        finally:
            DIAL.reset(token)

    def uses_proxy(self, url: str) -> bool:
        """Whether a proxy fetches this URL, and so looks its host up."""
        return self._sites.of(url).proxy is not None

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()

    async def _answer(
        self, url: str, settings: SiteSettings, headers: dict[str, str], body: Body, start_s: float
    ) -> Response:
        """The answer, whole or cut."""
        reading = _Reading(body, settings.max_body_bytes, self._options)
        proxy = settings.proxy
        http_proxy = proxy if proxy is not None and not proxy.is_socks else None
        if proxy is not None:
            self._refuse_private(url)
        if http_proxy is not None and not url.startswith("https:"):
            headers |= http_proxy.headers()  # with TLS only the CONNECT before it may show them
        try:
            async with (
                asyncio.timeout(self._options.timeout_s),
                self._session(proxy).get(
                    URL(url, encoded=True),
                    headers=headers,
                    allow_redirects=False,
                    proxy=http_proxy.url if http_proxy else None,
                    proxy_headers=http_proxy.headers() if http_proxy else None,
                ) as theirs,
            ):
                assert isinstance(theirs, _Answer)
                reading.theirs = theirs
                await reading.read()
        except TimeoutError:
            if not body.size:
                raise
            reading.cut(Cut.TIME)
        response = reading.response(url, start_s, self._clock(), proxy)
        if settings.cookies:
            self._cookies.learn(url, response.headers.getall("Set-Cookie", ()), response.end_s)
        return response

    def _headers(
        self, url: str, settings: SiteSettings, conditional: Validators | None, via: str | None
    ) -> dict[str, str]:
        """What this request says besides what all say."""
        headers = dict(settings.headers)
        if conditional is not None:
            headers |= conditional.headers()
        if self._options.referer and via and (referer := _referer(via, url)):
            headers["Referer"] = referer
        if settings.cookies and (cookie := self._cookies.header(url, self._clock())):
            headers["Cookie"] = cookie
        return headers

    def _refuse_private(self, url: str) -> None:
        """A proxy resolves the names; a private address that stands in the URL is still refused. Raises: AddressRefused."""
        literal = ip_literal(URL(url, encoded=True).raw_host or "")
        if literal and not (self._options.allow_private or is_public(literal.host)):
            raise AddressRefused(f"{literal.host} is not a public address (--allow-private allows it)")

    def _session(self, proxy: Proxy | None) -> aiohttp.ClientSession:
        """The session of a SOCKS proxy, or the one of all else: connections must not be mixed up."""
        key = proxy if proxy is not None and proxy.is_socks else None
        if key not in self._sessions:
            self._sessions[key] = self._opened(key)
        return self._sessions[key]

    def _opened(self, socks: Proxy | None) -> aiohttp.ClientSession:
        options = self._options
        network = Network(
            allow_private=options.allow_private, tls_verify=options.tls_verify, ipv4=options.ipv4, ipv6=options.ipv6
        )
        if socks is None:
            connector = Connector(self._resolver, network)
        else:
            connector = SocksConnector(
                self._resolver, network, SocksProxy(socks.host, socks.port, socks.user, socks.password)
            )
        codings = [name for name in options.accept_encoding if name in CODINGS]
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # `Cookies` is the jar
            headers={
                "User-Agent": options.user_agent,
                "Accept": ACCEPT,
                "Accept-Encoding": ", ".join(codings) or "identity",
            },
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=options.connect_timeout_s, sock_read=options.read_timeout_s
            ),
            auto_decompress=False,
            trust_env=False,
            response_class=_Answer,
            middlewares=(_never_twice_by_itself,),
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=2 * MAX_HEAD_BYTES,  # the wire counts
            max_field_size=2 * MAX_HEAD_BYTES,
            max_headers=MAX_HEADER_LINES,
        )


class _Reading:
    """One answer on its way in."""

    def __init__(self, body: Body, max_body_bytes: int, options: FetchOptions) -> None:
        self.theirs: _Answer | None = None
        self._body = body
        self._left = max_body_bytes
        self._options = options
        self._cuts: list[Cut] = []

    def cut(self, cut: Cut) -> None:
        """Something of the answer is missing; its connection is of no use any more."""
        self._cuts.append(cut)
        if self.theirs is not None:
            self.theirs.close()

    async def read(self) -> None:
        """Read the body up to a limit; the rest is never read."""
        theirs = self.theirs
        assert theirs is not None
        if theirs.status < FIRST_HTTP_STATUS:
            raise ConnectionLost(f"{theirs.status} is no HTTP status")
        if theirs.is_head_cut:
            self._cuts.append(Cut.HEADERS)
        loop = asyncio.get_running_loop()
        began_s, began_bytes = loop.time(), 0
        body, window_s = self._body, self._options.rate_window_s
        async for chunk in theirs.content.iter_any():
            if len(chunk) > self._left:
                body.append(chunk[: self._left])
                self.cut(Cut.LENGTH)
                return
            body.append(chunk)
            self._left -= len(chunk)
            passed_s = loop.time() - began_s
            if passed_s >= window_s:
                if body.size - began_bytes < self._options.min_rate * passed_s:
                    self.cut(Cut.TIME)
                    return
                began_s, began_bytes = began_s + passed_s, body.size

    def response(self, url: str, start_s: float, end_s: float, proxy: Proxy | None) -> Response:
        """What has been read."""
        theirs = self.theirs
        assert theirs is not None
        headers, fields = theirs.headers, theirs.raw_headers
        if len(fields) > MAX_HEADERS:
            self._cuts.append(Cut.HEADERS)
            fields = fields[:MAX_HEADERS]
            headers = _named(fields)
        is_absolute = proxy is not None and not proxy.is_socks and url.startswith("http:")
        version = theirs.version
        return Response(
            url=url,
            status=theirs.status,
            reason=theirs.reason or "",
            version=f"{version.major}.{version.minor}" if version else "",
            headers=headers,
            raw_headers=fields,
            request=_request_head(theirs, is_absolute=is_absolute),
            body=self._body,
            cuts=tuple(self._cuts),
            address=theirs.address if proxy is None else "",
            start_s=start_s,
            end_s=end_s,
        )


class _Answer(aiohttp.ClientResponse):
    """A response that knows its peer, and that shows what came of a head without end."""

    address = ""
    is_head_cut = False

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

    def _take(self, line: re.Match[bytes], rest: bytes) -> None:
        lines = rest.split(b"\n", MAX_HEADERS + 1)[:-1]  # the last one is not whole
        parted = (one.rstrip(b"\r").partition(b":") for one in lines)
        self.is_head_cut = True
        self.version = aiohttp.HttpVersion(int(line[1]), int(line[2]))
        self.status = int(line[3])
        self.reason = (line[4] or b"").decode("utf-8", "surrogateescape")
        self._raw_headers = tuple((name, value.strip()) for name, colon, value in parted if colon and name.strip())
        self._headers = _named(self._raw_headers)
        self.content = EMPTY_PAYLOAD


def _named(fields: Iterable[tuple[bytes, bytes]]) -> CIMultiDictProxy[str]:
    """Raw headers by name."""
    return CIMultiDictProxy(
        CIMultiDict(
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            for name, value in fields
        )
    )


def _request_head(theirs: aiohttp.ClientResponse, *, is_absolute: bool) -> bytes:
    """The request as aiohttp wrote it, without credentials. An HTTP proxy is told the whole URL."""
    info = theirs.request_info
    target, headers = str(info.url) if is_absolute else info.url.raw_path_qs, info.headers
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if "Authorization" in headers or "Proxy-Authorization" in headers:
        lines = [line for line in lines if line.partition(":")[0].lower() not in _SECRET]
    fields = "".join(lines)
    return f"{info.method} {target} HTTP/1.1\r\n{fields}\r\n".encode()


def _referer(via: str, url: str) -> str:
    """The page's URL without user and fragment (RFC 9110 section 10.1.3); empty from https to http, or if it cannot be sent."""
    if not is_sendable(via) or (via.startswith("https:") and not url.startswith("https:")):
        return ""
    page = URL(via, encoded=True)
    return str(page.with_user(None).with_fragment(None)) if page.raw_user or page.raw_fragment else via


async def _never_twice_by_itself(request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
    """Only a kept connection that proved dead is worth a second try at once (RFC 9112 section 9.3.1).

    aiohttp repeats a GET after any disconnect, a fresh connection's too: that would be a fetch that
    the host's gate never saw.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if DIAL.get().is_fresh:
            raise ConnectionLost(one_line(error)) from error
        raise
