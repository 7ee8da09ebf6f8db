"""The fetcher: a URL in, a response or a `FetchError` out. Redirects are not followed (they are links)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import structlog
from yarl import URL

from anabranch.crawler.fetching.bodies import Scratch
from anabranch.crawler.fetching.cookies import Cookies
from anabranch.crawler.fetching.exchange import Asking, Exchange
from anabranch.crawler.fetching.kinds import FOREIGN, failure_of, out_of_files
from anabranch.crawler.fetching.options import FetchOptions, Limits, Site, Validators
from anabranch.crawler.fetching.origins import Origins
from anabranch.crawler.fetching.requests import Fields, referer, usual_fields
from anabranch.crawler.fetching.response import Response
from anabranch.crawler.fetching.sites import Sites, SiteSettings
from anabranch.crawler.fetching.ways import Ways
from anabranch.crawler.network.addresses import ip_literal
from anabranch.crawler.network.connector import is_public
from anabranch.crawler.network.descriptors import Connections
from anabranch.crawler.network.wire import Dial
from anabranch.crawler.outcomes.errors import TooManyFiles
from anabranch.crawler.outcomes.failures import AddressRefused, FetchError, Unfetchable

if TYPE_CHECKING:
    from anabranch.crawler.network.dns import Resolver

log = structlog.get_logger(__name__)

_USUAL_CONNECTIONS = Connections()

#: What a fetch may end with that is no defect of ours.
_FAILURES: tuple[type[Exception], ...] = (FetchError, TooManyFiles, *FOREIGN)


class Fetcher:
    """Fetches URLs over kept connections. Built inside a running loop; serves any number of workers.

    Each fetch ends within its time; a body is cut at its limit and at the time, and kept. Addresses that are not
    public are refused unless the options allow them. `clock` gives epoch seconds. A fetch for which there is no connection left
    waits, within its time. The resolver stays the caller's to close, after the fetcher.
    """

    def __init__(
        self,
        options: FetchOptions,
        *,
        resolver: Resolver,
        scratch: Scratch,
        clock: Callable[[], float],
        sites: Iterable[Site] = (),
        connections: Connections = _USUAL_CONNECTIONS,
    ) -> None:
        """Raises: OrderError for sites that make no sense, or a password's variable that is not set."""
        self._options = options
        self._scratch = scratch
        self._clock = clock
        self._sites = Sites(options, sites)
        self._cookies = Cookies()
        self._ways = Ways(options, resolver, connections)
        usual = usual_fields(options)
        self._fields = Fields(usual)
        self._origins = Origins(usual)
        if not options.tls_verify:
            log.warning("certificates are not verified: anybody on the way may answer in a host's name")

    async def get(
        self,
        url: str,
        *,
        conditional: Validators | None = None,
        via: str | None = None,
        limits: Limits | None = None,
        keep_broken: bool = False,
    ) -> Response:
        """Fetch a canonical URL with GET; its bytes are sent unchanged, its host is the Host header.

        `conditional` asks for the page only if it has changed (else 304, an answer); `via` is the page it was found on, told
        only if the options say so; `limits` are held besides the usual ones. With `keep_broken` a body that broke off is an
        answer, cut by DISCONNECT, else a failure. Whoever gets the response closes its body.

        Raises: FetchError subclasses, with `start_s` and `end_s`; StorageError if a large body cannot be kept; CancelledError.
        """
        start_s = self._clock()
        settings = self._sites.of(url)
        limits = settings.limits if limits is None else settings.limits.and_also(limits)
        dial = Dial(is_proxied=settings.proxy is not None)
        body = self._scratch.body()
        try:
            exchange = Exchange(self._asking(url, settings, conditional, via), dial, body, self._options, limits)
            await exchange.run(self._ways.of(settings.proxy), keep_broken=keep_broken)
            response = exchange.response(start_s, self._clock())
            if settings.cookies:
                self._cookies.learn(url, response.headers.getall("Set-Cookie", ()), response.end_s)
            return response
        except _FAILURES as error:
            body.close()
            failure = _failure_of(error, dial, limits.timeout_s).timed(start_s, self._clock())
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            body.close()
            raise

    def uses_proxy(self, url: str) -> bool:
        """Whether a proxy fetches this URL, and so looks its host up."""
        return self._sites.of(url).proxy is not None

    async def close(self) -> None:
        """Close all connections."""
        await self._ways.close()

    def _asking(self, url: str, settings: SiteSettings, conditional: Validators | None, via: str | None) -> Asking:
        """The request. Raises: AddressRefused, Unfetchable, ValueError for a URL that cannot be asked for."""
        proxy = settings.proxy
        if proxy is not None:
            self._refuse_private(url)
        origin, path = self._origins.of(url, proxy)
        own = self._own_fields(url, settings, conditional, via)
        if origin.authorization:
            if "Authorization" in own:
                raise Unfetchable("a user stands in the URL, and another one in the order")
            own = {**own, "Authorization": origin.authorization}
        if proxy is not None and not proxy.is_socks and url.startswith("http:"):
            own = {**own, **proxy.headers()}  # with TLS only the CONNECT before it may show them
        return Asking(url, origin.request(path, self._fields.with_own(own)), proxy, origin)

    def _own_fields(
        self, url: str, settings: SiteSettings, conditional: Validators | None, via: str | None
    ) -> Mapping[str, str]:
        """What this request says besides what all say."""
        own = settings.headers
        if conditional is not None:
            own = {**own, **conditional.headers()}
        if self._options.referer and via and (page := referer(via, url)):
            own = {**own, "Referer": page}
        if settings.cookies and (cookie := self._cookies.header(url, self._clock())):
            own = {**own, "Cookie": cookie}
        return own

    def _refuse_private(self, url: str) -> None:
        """A proxy resolves the names; a private address that stands in the URL is still refused. Raises: AddressRefused."""
        literal = ip_literal(URL(url, encoded=True).raw_host or "")
        if literal and not (self._options.allow_private or is_public(literal.host)):
            raise AddressRefused(f"{literal.host} is not a public address (--allow-private allows it)")


def _failure_of(error: Exception, dial: Dial, timeout_s: float) -> FetchError:
    """The failure that ended a fetch."""
    if dial.lacks_files or isinstance(error, TooManyFiles):
        return out_of_files()
    return error if isinstance(error, FetchError) else failure_of(error, dial, timeout_s)
