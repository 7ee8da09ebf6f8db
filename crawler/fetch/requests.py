"""The bytes of a GET request, made from the URL, the options, the site's settings and the cookies.

The common part of all URLs of a scheme, host and port is made once (`Origins`), by aiohttp's own request object: it knows hosts
and proxies, and the connector needs it.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from yarl import URL

from anabranch.crawler.fetch.addresses import ip_literal, is_public
from anabranch.crawler.fetch.decoding import CODINGS
from anabranch.crawler.fetch.options import ACCEPT
from anabranch.crawler.fetch.secrets import is_sendable
from anabranch.crawler.outcomes.failures import AddressRefused, Unfetchable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiohttp.client_reqrep import ConnectionKey

    from anabranch.crawler.fetch.cookies import Cookies
    from anabranch.crawler.fetch.digest import Digests
    from anabranch.crawler.fetch.options import FetchOptions, SiteSettings, Validators
    from anabranch.crawler.fetch.proxy import Proxy

#: Origins that are cached: some 8 MB.
MAX_ORIGINS = 4096

#: Scheme and authority; path and query; the fragment is not sent. `http:///x` has no host. No part may contain a character
#: that would end the request line or its target.
_URL = re.compile(
    r"(https?://[^/?#\x00-\x20\x7f]*)([^#\x00-\x20\x7f]*)(?:#[^\x00-\x20\x7f]*)?", re.IGNORECASE | re.ASCII
)
#: Characters that would end a header field, or are not allowed in one.
_NOT_SENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Fields that archives never have.
_ALWAYS_SECRET = frozenset({"authorization", "proxy-authorization", "cookie"})
#: Fields with credentials.
_SECRET = re.compile(rb"(?<=\n)(?:proxy-)?authorization:[^\n]*\n", re.IGNORECASE)

#: The type of a form's fields.
FORM_TYPE = "application/x-www-form-urlencoded"
#: The header fields that say so.
FORM_FIELDS: Mapping[str, str] = MappingProxyType({"Content-Type": FORM_TYPE})


class FetchRequest(NamedTuple):
    """A request: its URL and how it is sent."""

    url: str  #: canonical
    settings: SiteSettings
    conditional: Validators | None = None  #: the page only if it has changed since this version
    via: str | None = None  #: the page with the link
    form: bytes | None = None  #: the fields of a form, encoded, or another body; it is sent by POST
    form_fields: Mapping[str, str] = FORM_FIELDS  #: header fields that come with it


class HttpRequest(NamedTuple):
    """A request, ready to be sent."""

    url: str
    data: bytes  #: the whole request
    origin: Origin
    proxy: Proxy | None
    secret_fields: frozenset[str] = frozenset()  #: names of fields with a login, in lower case


class RequestBuilder:
    """Makes the requests of a run."""

    def __init__(self, options: FetchOptions, cookies: Cookies, digests: Digests) -> None:
        codings = [name for name in options.accept_encoding if name in CODINGS]
        common = {
            "User-Agent": options.user_agent,
            "Accept": ACCEPT,
            "Accept-Encoding": ", ".join(codings) or "identity",
        }
        self._options = options
        self._cookies = cookies
        self._digests = digests
        self._fields = HeaderFields(common)
        self._origins = Origins(common)

    def build(self, asked: FetchRequest, proxy: Proxy | None, now_s: float) -> HttpRequest:
        """The request at `now_s` (epoch), through this proxy if there is one.

        Raises: AddressRefused, Unfetchable, InvalidURL, ValueError.
        """
        settings = asked.settings
        if proxy is not None and not self._options.allow_private:
            literal = ip_literal(URL(asked.url, encoded=True).raw_host or "")
            if literal and not is_public(literal.host):  # the proxy resolves names, and must check addresses itself
                raise AddressRefused(f"{literal.host} is not a public address (--allow-private allows it)")
        origin, path = self._origins.of(asked.url, proxy)
        fields = self._fields_for(asked, now_s)
        if authorization := self._authorization(asked, origin, path.decode(), fields):
            fields = {**fields, "Authorization": authorization}
        if proxy is not None and origin.is_forwarded:
            fields = {**fields, **proxy.headers()}  # with TLS only the CONNECT before it may show them
        data = origin.request(path, self._fields.encode(fields))
        if asked.form is not None:
            data = b"POST" + data.removeprefix(b"GET") + asked.form
        hidden = frozenset[str]() if settings.secrets is None else settings.secrets.fields - _ALWAYS_SECRET
        return HttpRequest(asked.url, data, origin, proxy, hidden)

    def _authorization(self, asked: FetchRequest, origin: Origin, target: str, fields: Mapping[str, str]) -> str:
        """The user of the URL, or an answer to a digest challenge; empty if there is neither."""
        if origin.authorization:
            if "Authorization" in fields or asked.settings.digest is not None:
                raise Unfetchable("the URL has a user, and the order another one")
            return origin.authorization
        if asked.settings.digest is None:
            return ""
        method = "GET" if asked.form is None else "POST"
        return self._digests.authorization(origin_of(asked.url), target, asked.settings.digest, method)

    def _fields_for(self, asked: FetchRequest, now_s: float) -> Mapping[str, str]:
        """The fields that the settings, an earlier answer, the linking page and the cookies add to the common ones."""
        settings, via = asked.settings, asked.via
        fields = settings.headers
        if asked.form is not None:
            fields = {**fields, **asked.form_fields, "Content-Length": str(len(asked.form))}
        if asked.conditional is not None:
            fields = {**fields, **asked.conditional.headers()}
        if self._options.referer and via and (page := referer(via, asked.url)):
            fields = {**fields, "Referer": page}
        if settings.cookies and (cookie := self._cookies.header(asked.url, now_s)):
            own = fields.get("Cookie")
            fields = {**fields, "Cookie": f"{own}; {cookie}" if own else cookie}
        return fields


def origin_of(url: str) -> str:
    """Scheme and authority of an absolute URL."""
    match = _URL.fullmatch(url)
    return match[1].lower() if match else ""


def referer(via: str, url: str) -> str:
    """The Referer for a link from `via`, without user and fragment (RFC 9110 section 10.1.3); empty if it must not be sent."""
    if not is_sendable(via) or (via.startswith("https:") and not url.startswith("https:")):
        return ""
    page = URL(via, encoded=True)
    return str(page.with_user(None).with_fragment(None)) if page.raw_user or page.raw_fragment else via


def without_credentials(request: bytes, secret_fields: Iterable[str] = ()) -> bytes:
    """The request without its credentials, to be shown and archived. Archives leave out the cookies, too."""
    shown = _SECRET.sub(b"", request)
    for name in secret_fields:
        shown = re.sub(rb"(?<=\n)%b:[^\n]*\n" % re.escape(name.encode()), b"", shown, flags=re.IGNORECASE)
    return shown


class HeaderFields:
    """Header fields as bytes. Those that all requests share are encoded once."""

    def __init__(self, common: Mapping[str, str]) -> None:
        """Raises: ValueError for what cannot be sent."""
        self._common = {name.lower(): (name, value) for name, value in common.items()}
        self._encoded = _encode(self._common)

    def encode(self, fields: Mapping[str, str]) -> bytes:
        """The common fields and those of one request, which override them by name. Raises: ValueError."""
        if not fields:
            return self._encoded
        return _encode(self._common | {name.lower(): (name, value) for name, value in fields.items()})


def _encode(fields: Mapping[str, tuple[str, str]]) -> bytes:
    text = [f"{name}: {value}" for name, value in fields.values()]
    if any(map(_NOT_SENDABLE.search, text)):
        raise ValueError("a header has a character that cannot be sent")
    return "".join(f"{line}\r\n" for line in text).encode("latin-1")  # all are ASCII but cookies, which are bytes


class Origin(NamedTuple):
    """Scheme, host and port, with the proxy on the way there."""

    key: ConnectionKey  #: connections with the same key are interchangeable
    start: bytes  #: of the request: the method, and for a forwarding proxy the origin
    host: bytes  #: of the request: the version and the Host field
    authorization: str  #: the Authorization of the URL's user and password; empty without them
    is_forwarded: bool  #: an HTTP proxy handles the request itself
    connect_request: Callable[[], aiohttp.ClientRequest]  #: makes what aiohttp's connector makes a connection for

    def request(self, path: bytes, fields: bytes) -> bytes:
        """The whole request for path and query, with these fields."""
        return b"".join((self.start, path, self.host, fields, b"\r\n"))


class Origins:
    """The origins of URLs, cached. A hit costs 1 µs, a miss 50 µs."""

    def __init__(self, common: Mapping[str, str]) -> None:
        """`common` are the fields of all requests; they are sent with a CONNECT, too."""
        self._common = common
        self._origin = lru_cache(MAX_ORIGINS)(self._make)

    def of(self, url: str, proxy: Proxy | None) -> tuple[Origin, bytes]:
        """A canonical URL's origin, and its path and query. Raises: aiohttp.InvalidURL, ValueError."""
        match = _URL.fullmatch(url)
        if match is None:
            raise aiohttp.InvalidURL(url)
        start, path = match.groups()
        if not path.startswith("/"):
            path = f"/{path}"
        return self._origin(start, proxy), path.encode()

    def _make(self, start: str, proxy: Proxy | None) -> Origin:
        """Raises: aiohttp.InvalidURL, ValueError."""
        url = URL(f"{start}/", encoded=True)
        request, origin = self._connect_request(url, proxy), url.with_user(None)
        is_forwarded = request.proxy is not None and not request.is_ssl()
        return Origin(
            key=request.connection_key,
            start=f"GET {str(origin).removesuffix('/') if is_forwarded else ''}".encode(),
            host=f" HTTP/1.1\r\nHost: {request.headers['Host']}\r\n".encode(),
            authorization=request.headers.get("Authorization", ""),
            is_forwarded=is_forwarded,
            connect_request=partial(self._connect_request, origin, proxy),
        )

    def _connect_request(self, origin: URL, proxy: Proxy | None) -> aiohttp.ClientRequest:
        """A request for one connection, since aiohttp's connector changes it. In a running loop."""
        proxying: dict[str, Any] = {}
        if proxy is not None and not proxy.is_socks:
            proxying = {"proxy": URL(proxy.url), "proxy_headers": {**self._common, **proxy.headers()}}
        return aiohttp.ClientRequest("GET", origin, loop=asyncio.get_running_loop(), **proxying)
