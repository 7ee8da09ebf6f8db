"""What a fetch does and may cost, as plain data: the order's [fetch] and [[site]], without their spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that have a key of their own, or that the exchange itself must decide.
_OURS = frozenset(
    [
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "if-modified-since",
        "if-none-match",
        "proxy-authorization",
        "range",
        "referer",
        "te",
        "transfer-encoding",
        "upgrade",
    ]
)


class Validators(NamedTuple):
    """What an earlier answer said of its version, for a conditional GET (RFC 9110 section 13.1)."""

    etag: str = ""  #: as it stood in ETag, quotes included; empty = none
    last_modified: str = ""  #: as it stood in Last-Modified; empty = none

    def headers(self) -> dict[str, str]:
        """If-None-Match and If-Modified-Since; what could not be sent as it came is left out."""
        named = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in named.items() if value and is_sendable(value)}


class Limits(NamedTuple):
    """What one fetch may cost."""

    timeout_s: float  #: in all: name, connection, headers, body
    max_body_bytes: int  #: as they come, coded

    def and_also(self, other: Limits) -> Limits:
        """The narrower of both."""
        return Limits(min(self.timeout_s, other.timeout_s), min(self.max_body_bytes, other.max_body_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """What holds for every fetch; a `Site` may change some of it."""

    user_agent: str
    timeout_s: float = 60.0  #: for one fetch in all: name, connection, headers, body
    connect_timeout_s: float = 10.0  #: for one address: TCP and TLS
    first_byte_timeout_s: float = 20.0  #: from the request's end to the answer's first byte
    read_timeout_s: float = 20.0  #: between two reads
    min_rate: int = 100  #: body bytes per second, over `rate_window_s` at least; 0 = no matter how slow
    rate_window_s: float = 10.0  #: also the time that a body has before its rate is looked at
    max_body_bytes: int = 16 << 20  #: as they come, coded
    accept_encoding: tuple[str, ...] = ("gzip", "deflate", "br", "zstd")  #: asked for if they can be undone here
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  #: sent with each request
    cookies: bool = False  #: kept in memory for the run
    referer: bool = False  #: the page a link was found on is told
    proxy: str = ""  #: `http://host:port`, `https://…` or `socks5://…`; empty = none
    proxy_password_env: str = ""  #: variable with the password of the proxy's user
    tls_verify: bool = True
    ipv4: bool = True
    ipv6: bool = True
    allow_private: bool = False  #: loopback and private addresses may be fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One entry: where, and what is different there; None or empty = as elsewhere."""

    surts: tuple[str, ...]  #: SURT prefixes, as `frontier.policies.surt.parse_surt` reads them
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    user: str = ""  #: of basic authentication (RFC 7617)
    password_env: str = ""  #: variable with the user's password
    proxy: str | None = None  #: as in `crawler.fetching.proxies.parse_proxy`; "" = none here
    proxy_password_env: str = ""
    cookies: bool | None = None
    max_body_bytes: int | None = None


def check_header(name: str, value: str) -> None:
    """Raises: ValueError, one line, if it could not be sent or is not the operator's to set. The value is not shown."""
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a header")
    if name.lower() in _OURS:
        raise ValueError(
            f"the header {name} is set by the crawler; see the keys user, cookies, accept_encoding, referer"
        )
    if not is_sendable(value):
        raise ValueError(f"the header {name} has a value that cannot be sent; it must be printable ASCII")


def is_sendable(value: str) -> bool:
    """A header value that can be sent as it is: printable ASCII. Pure."""
    return value.isascii() and value.isprintable()
