"""The fetcher: a URL in, a `Response` or a `FetchError` out. It translates the errors of the libraries.

After a failure that may not be the host's it looks whether the proxy, or this machine's network, is away (`ways`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp.http import HttpProcessingError

from anabranch.crawler.fetch.capped import CappedConnector, CappedSocksConnector
from anabranch.crawler.fetch.connection_limits import ConnectionLimits, IdleConnections
from anabranch.crawler.fetch.connections import MAX_HEAD_BYTES, ConnectAttempts, Connector, HeadTooLong, SocksConnector
from anabranch.crawler.fetch.cookies import Cookies
from anabranch.crawler.fetch.digest import Digests
from anabranch.crawler.fetch.exchange import HttpExchange
from anabranch.crawler.fetch.options import Sites, SiteSettings
from anabranch.crawler.fetch.proxy import system_message
from anabranch.crawler.fetch.requests import FORM_FIELDS, FetchRequest, RequestBuilder, origin_of
from anabranch.crawler.fetch.secrets import Login
from anabranch.crawler.fetch.ways import OF_PROXIES, NetworkWay, ProxyWay
from anabranch.crawler.outcomes.errors import TooManyFiles
from anabranch.crawler.outcomes.failures import (
    OPEN_FILES,
    AddressRefused,
    BadHttp,
    CertificateRefused,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    ServiceAway,
    Unfetchable,
    proxy_service,
)
from anabranch.crawler.urls.parsing import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from anabranch.crawler.fetch.bandwidth import Meter
    from anabranch.crawler.fetch.dns import Resolver
    from anabranch.crawler.fetch.options import FetchLimits, FetchOptions, SiteOptions, Validators
    from anabranch.crawler.fetch.proxy import Proxy
    from anabranch.crawler.fetch.reach import Place
    from anabranch.crawler.fetch.response import PageHead, Response, Scratch

log = structlog.get_logger(__name__)

#: Error of a library -> our failure. The first row that fits wins; any other error is a defect.
_FAILURES: Mapping[type[Exception], type[FetchError]] = MappingProxyType(
    {
        aiohttp.ConnectionTimeoutError: ConnectFailed,
        aiohttp.SocketTimeoutError: FetchTimeout,
        TimeoutError: FetchTimeout,  # ours, for the whole fetch
        aiohttp.ClientConnectorCertificateError: CertificateRefused,
        aiohttp.ClientHttpProxyError: ConnectFailed,  # such as 502: the proxy does not reach the host
        aiohttp.ClientConnectorError: ConnectFailed,  # refused, unreachable, TLS
        aiohttp.InvalidURL: Unfetchable,
        aiohttp.NonHttpUrlClientError: Unfetchable,
        HeadTooLong: ConnectionLost,
        HttpProcessingError: BadHttp,  # the parser's, of a head or a body
        aiohttp.ClientResponseError: ConnectFailed,  # bad HTTP of a proxy that is asked to connect
        aiohttp.ClientError: ConnectionLost,  # disconnects, payload errors
        OSError: ConnectionLost,  # one of connecting is a ClientConnectorError
        ValueError: Unfetchable,  # a URL that yarl, the TLS layer or the request cannot take
    }
)

#: The errors of a fetch that are no defects.
_FORESEEN: tuple[type[Exception], ...] = (FetchError, TooManyFiles, *_FAILURES)

_MAX_MESSAGE_CHARS = 300
#: Failures after which the proxy or the network may be away.
_DOUBTFUL = (ConnectFailed, ConnectionLost, FetchTimeout)
#: No way to a host; None: its addresses failed for several reasons.
_NO_WAY = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, None})


class _Reading(NamedTuple):
    """How an answer is read."""

    limits: FetchLimits
    keep_broken: bool = False
    wants_body: Callable[[PageHead], bool] | None = None


class Fetcher:
    """Fetches URLs over kept connections. Built inside a running loop; serves any number of workers.

    Each fetch, with its wait for a free connection, ends within its time limit; a body is cut at its limits, and kept.
    Addresses that are not public are refused unless the options allow them. The caller closes the resolver, afterwards.
    """

    def __init__(
        self,
        options: FetchOptions,
        *,
        resolver: Resolver,
        scratch: Scratch,
        clock: Callable[[], float],
        sites: Iterable[SiteOptions] = (),
        connections: ConnectionLimits | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> None:
        """`may_send` is asked before each request; if it denies, HostTakenOver is raised.

        Raises: OrderError for invalid sites, or a password's variable that is not set.
        """
        self._options = options
        self._resolver = resolver
        self._scratch = scratch
        self._clock = clock
        self._may_send = may_send
        self._sites = Sites(options, sites)
        self.cookies = Cookies()
        self._digests = Digests()
        self._requests = RequestBuilder(options, self.cookies, self._digests)
        connections = connections or ConnectionLimits()
        self._max_busy = connections.busy
        self._bandwidth = connections.bandwidth if connections.bandwidth and connections.bandwidth.is_capped else None
        self._idle = IdleConnections(connections.idle)  # of all connectors together
        self._connectors: dict[Proxy | None, Connector] = {}
        self._network = NetworkWay(resolver)
        self._ways = {
            proxy: ProxyWay(proxy, resolver, verify=options.tls_verify) for one in self._sites.choices for proxy in one
        }
        self._turn = 0  # of several proxies
        self._has_worked = False
        if not options.tls_verify:
            log.warning("certificates are not verified: anybody on the way may answer in a host's name")

    async def get(
        self,
        url: str,
        *,
        conditional: Validators | None = None,
        via: str | None = None,
        limits: FetchLimits | None = None,
        keep_broken: bool = False,
        wants_body: Callable[[PageHead], bool] | None = None,
    ) -> Response:
        """Fetch a canonical URL with GET; its bytes are sent unchanged, its host is the Host header.

        `conditional` requests the page only if it has changed (else 304). `via`, the linking page, is sent only if the options
        allow it. `limits` may narrow the usual ones. With `keep_broken` a body that broke off is an answer, cut by DISCONNECT;
        else it is a failure if the status is 2xx, whose body counts. Where `wants_body` denies, the body is left unread, a cut
        by ABORT; what it raises passes. The caller closes the response's body. Raises: FetchError with its times; StorageError;
        CancelledError.
        """
        settings = self._sites.of(url)
        limits = settings.limits if limits is None else settings.limits.and_also(limits)
        asked = FetchRequest(url, settings, conditional, via)
        return await self._ask(asked, _Reading(limits, keep_broken, wants_body))

    async def post(self, url: str, form: bytes, fields: Mapping[str, str] = FORM_FIELDS) -> Response:
        """Send the fields of a form to a canonical URL, or another body with these header fields; as `get`."""
        settings = self._sites.of(url)
        return await self._ask(FetchRequest(url, settings, form=form, form_fields=fields), _Reading(settings.limits))

    async def _ask(self, asked: FetchRequest, reading: _Reading) -> Response:
        """Fetch by the next proxy that can be used, or directly. Raises: as `get`."""
        away: ServiceAway | None = None
        for proxy in self._in_turn(asked.settings.proxies.of(asked.url)) or (None,):
            try:
                return await self._ask_known(asked, reading, proxy)
            except ServiceAway as error:
                if proxy is None or error.service != proxy_service(proxy.url):
                    raise
                self._ways[proxy].note_away()
                away = error
        assert away is not None
        raise away

    async def _ask_known(self, asked: FetchRequest, reading: _Reading, proxy: Proxy | None) -> Response:
        """Make one exchange, or two if the first brings a challenge of digest authentication that can be answered."""
        response = await self._exchange(asked, reading, proxy)
        if asked.settings.digest is None or response.status != HTTPStatus.UNAUTHORIZED:
            return response
        if not self._digests.learn(origin_of(asked.url), response.headers.getall("WWW-Authenticate", ())):
            return response
        response.body.close()
        return await self._exchange(asked, reading, proxy)

    def _in_turn(self, proxies: Sequence[Proxy]) -> Sequence[Proxy]:
        """The proxies from the next one on; those that were away when they were last used come last."""
        if len(proxies) > 1:
            self._turn = (self._turn + 1) % len(proxies)
            proxies = sorted((*proxies[self._turn :], *proxies[: self._turn]), key=lambda one: self._ways[one].is_away)
        return proxies

    async def _exchange(self, asked: FetchRequest, reading: _Reading, proxy: Proxy | None) -> Response:
        """Make one exchange, through this proxy or directly, when the caps of bandwidth allow it. Raises: as `get`.

        What the caps hold up is no time of the fetch, which so begins later.
        """
        if self._bandwidth is None:
            return await self._exchange_now(asked, reading, proxy)
        meter = self._bandwidth.meter(host_of(asked.url))
        await meter.admit()
        try:
            response = await self._exchange_now(asked, reading, proxy, meter)
        except FetchError as error:
            if error.end_s and meter.waited_s:
                error.timed(error.start_s + meter.waited_s, error.end_s)
            raise
        finally:
            meter.end()
        return response._replace(start_s=response.start_s + meter.waited_s)

    async def _exchange_now(
        self, asked: FetchRequest, reading: _Reading, proxy: Proxy | None, meter: Meter | None = None
    ) -> Response:
        """Make one exchange. Raises: as `get`."""
        url, settings, limits = asked.url, asked.settings, reading.limits
        start_s = self._clock()
        attempts = ConnectAttempts(proxy="" if proxy is None else proxy.url)
        body = self._scratch.body()
        try:
            request = self._requests.build(asked, proxy, start_s)
            exchange = HttpExchange(request, attempts, body, self._options, limits, self._may_send)
            connector = self._connector(proxy)
            await exchange.run(connector, keep_broken=reading.keep_broken, wants_body=reading.wants_body, meter=meter)
            response = exchange.response(start_s, self._clock(), self._secrets_of(url, settings))
            await self._blame_proxy(proxy, response)
            self._note_answer(proxy, (response.address, request.origin.key.port or 0), response)
            if settings.cookies:
                self.cookies.learn(url, response.headers.getall("Set-Cookie", ()), response.end_s)
                if response.secrets is not None:  # its own URLs may have the session that it begins
                    response = response._replace(secrets=response.secrets | self.cookies.values(url))
            return response
        except _FORESEEN as error:
            body.close()
            failure = _failure_of(error, attempts, limits.timeout_s)
            end_s = self._clock()
            if isinstance(failure, _DOUBTFUL) and not isinstance(error, HeadTooLong):
                failure = await self._away(error, proxy, url, start_s) or failure
            failure = failure.timed(start_s, end_s)
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            body.close()
            raise

    def _secrets_of(self, url: str, settings: SiteSettings) -> frozenset[bytes] | None:
        """The values of a login that is used for this URL; None if nothing of its answer is to be hidden."""
        redact = self._options.redact
        has_login = settings.secrets is not None or (settings.cookies and self.cookies.is_secret(url))
        if redact == "none" or not (has_login or redact == "all"):
            return None
        values = frozenset[bytes]() if settings.secrets is None else settings.secrets.values
        return values | self.cookies.values(url) if settings.cookies else values

    def login_of(self, url: str) -> Login | None:
        """The login by a form that this URL needs."""
        return self._sites.of(url).login

    @property
    def has_logins(self) -> bool:
        """Whether any URL needs a login by a form."""
        return self._sites.has_logins

    def cookies_for(self, url: str) -> str | None:
        """The Cookie field with which a URL would be asked for now; None where cookies are off."""
        return self.cookies.header(url, self._clock()) if self._sites.of(url).cookies else None

    def uses_proxy(self, url: str) -> bool:
        """Whether a proxy fetches this URL, and so resolves its host."""
        return bool(self._sites.of(url).proxies.of(url))

    @property
    def proxies(self) -> Mapping[str, Proxy]:
        """The proxies of the order, by their names as services."""
        return {proxy_service(proxy.url): proxy for proxy in self._ways}

    def may_use(self, host: str, proxy: Proxy) -> bool:
        """Whether this proxy fetches the pages at the root of this host, and no other one does now."""
        found = [self._sites.of(url).proxies.of(url) for url in (f"http://{host}/", f"https://{host}/")]
        return any(
            proxy in choice and all(self._ways[one].is_away for one in choice if one != proxy) for choice in found
        )

    def has_worked(self, proxy: Proxy | None) -> bool:
        """An answer has come through this proxy in this run; None: through any, or without one."""
        return self._has_worked if proxy is None else self._ways[proxy].has_worked

    async def fault_of(self, proxy: Proxy) -> str:
        """Why the proxy cannot be used now: it cannot be reached, or it reaches nothing.

        Empty if it can be used, or another one that fetches in turn with it.
        """
        mates = next((one for one in self._sites.choices if proxy in one.listed), None)
        faults = await asyncio.gather(*(self._ways[one].fault() for one in (mates.listed if mates else (proxy,))))
        return faults[0] if all(faults) else ""

    async def has_network(self) -> bool:
        """Whether this machine's network can be used: it has a route, and a host or name server that answered does so again."""
        return await self._network.works()

    async def close(self) -> None:
        """Close all connections."""
        ways: list[NetworkWay | ProxyWay] = [self._network, *self._ways.values()]
        for way in ways:
            await way.close()
        for connector in self._connectors.values():
            await connector.close()

    def _note_answer(self, proxy: Proxy | None, place: Place, response: Response) -> None:
        self._has_worked = True
        self._network.note_answer(place if proxy is None else None, response.end_s)
        if proxy is not None:
            self._ways[proxy].note_answer(_place_of(response.url), response.status, response.end_s)

    async def _away(self, error: Exception, proxy: Proxy | None, url: str, start_s: float) -> ServiceAway | None:
        """The fault of the proxy or the network in a fetch that failed; None if it was the host's."""
        if proxy is None:
            is_silent = isinstance(error, TimeoutError) or _has_no_way(error)
            return await self._network.away(error, start_s, is_silent=is_silent)
        return await self._ways[proxy].away(_place_of(url), start_s)

    async def _blame_proxy(self, proxy: Proxy | None, response: Response) -> None:
        """Raises: ServiceAway for an answer that the proxy gave in the host's place while it reaches nothing."""
        if proxy is None or proxy.is_socks or response.status not in OF_PROXIES:
            return
        if response.url.startswith("http://"):  # else the answer came through a tunnel, from the host
            away = await self._ways[proxy].away(_place_of(response.url), response.start_s)
            if away is not None:
                raise away

    def _connector(self, proxy: Proxy | None) -> Connector:
        """The connector of a SOCKS proxy, or the one of all other fetches: their connections must not be mixed."""
        socks = proxy if proxy is not None and proxy.is_socks else None
        connector = self._connectors.get(socks)
        if connector is None:
            parts = self._resolver, self._options, self._max_busy, self._idle
            direct, through = (
                (Connector, SocksConnector) if self._bandwidth is None else (CappedConnector, CappedSocksConnector)
            )
            connector = direct(*parts) if socks is None else through(*parts, socks)
            self._connectors[socks] = connector
        return connector


def _has_no_way(error: Exception) -> bool:
    """Whether the system found no way to the host, or its addresses failed for several reasons."""
    return isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno in _NO_WAY


def _place_of(url: str) -> Place:
    """The host and port of a canonical URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _failure_of(error: Exception, attempts: ConnectAttempts, timeout_s: float) -> FetchError:
    """The failure that ended a fetch; its message is one line."""
    if attempts.lacks_files or isinstance(error, TooManyFiles):
        return ServiceAway(OPEN_FILES, "too many files are open; raise the limit (ulimit -n) or lower [crawl] workers")
    if isinstance(error, FetchError):
        return error
    kind = next(ours for theirs, ours in _FAILURES.items() if isinstance(error, theirs))
    if kind is ConnectFailed and attempts.refused and not attempts.sockets:
        return AddressRefused(f"{attempts.refused} is not a public address (--allow-private allows it)")
    if kind is FetchTimeout and not isinstance(error, aiohttp.ClientError):
        return FetchTimeout(f"not done within {timeout_s:g} s")
    printable = _message(error).encode("utf-8", "backslashreplace").decode("utf-8")
    return kind(" ".join(printable.split())[:_MAX_MESSAGE_CHARS])


def _message(error: Exception) -> str:
    match error:
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection without a whole answer"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers {error.status} {error.message}"
        case aiohttp.ClientResponseError():
            return f"the proxy answers in bad HTTP: {error.message}"
        case HttpProcessingError():
            return f"bad HTTP: {error.message}"
        case aiohttp.SocketTimeoutError():
            return "nothing came for too long"
        case aiohttp.ClientConnectorError() if text := _system_message(error):
            return text
        case HeadTooLong():
            return f"more than {MAX_HEAD_BYTES} bytes of headers, trailers or chunk extensions"
        case _:
            return str(error) or type(error).__name__


def _system_message(error: aiohttp.ClientConnectorError) -> str:
    """The system's message for a failed connection to a host; empty if the error is not the system's."""
    if isinstance(error, aiohttp.ClientProxyConnectionError) or isinstance(
        error.os_error, ssl.SSLError | socket.gaierror
    ):
        return ""
    return system_message(error.os_error)
