"""What is different for a part of the web: headers, credentials, cookies, proxy, limits ([[site]] in the order).

A site names its part by SURT prefixes. Of several that cover a URL the longest wins, for each setting by itself (headers: for each
name by itself); of equal ones the later. All is worked out when the table is built. Passwords stand in environment variables
only: neither the order that is kept in the job nor a log ever holds one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from crawler.fetching.options import FetchOptions, is_sendable
from crawler.fetching.proxies import Proxy, basic_auth, parse_proxy
from crawler.outcomes.errors import OrderError
from frontier.errors import PolicyError
from frontier.policies.authority import authority, path_of
from frontier.policies.hosttable import HostTable
from frontier.policies.surt import SurtPrefix, parse_surt

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that have a key of their own, or that the exchange itself must decide.
_OURS = frozenset(
    "accept-encoding authorization connection content-length cookie expect host if-modified-since if-none-match "
    "proxy-authorization range referer te transfer-encoding upgrade".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One entry: where, and what is different there; None or empty = as elsewhere."""

    surts: tuple[str, ...]  #: SURT prefixes, as `frontier.policies.surt.parse_surt` reads them
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    user: str = ""  #: of basic authentication (RFC 7617)
    password_env: str = ""  #: variable with the user's password
    proxy: str | None = None  #: as in `proxies.parse_proxy`; "" = none here
    proxy_password_env: str = ""
    cookies: bool | None = None
    timeout_s: float | None = None
    max_body_bytes: int | None = None


class SiteSettings(NamedTuple):
    """What holds for one URL."""

    headers: Mapping[str, str]  #: with the credentials of the site
    proxy: Proxy | None
    cookies: bool
    timeout_s: float
    max_body_bytes: int


class _Rule(NamedTuple):
    prefix: SurtPrefix
    changes: Mapping[str, object]  #: fields of `SiteSettings`

    @property
    def rank(self) -> tuple[int, bool, bool, int]:
        """The higher, the longer the prefix."""
        prefix = self.prefix
        labels = prefix.host.count(".") + 1 if prefix.host else 0
        return labels, not prefix.with_subdomains, prefix.port is not None, len(prefix.path)

    def covers(self, name: str, host: str, path: str) -> bool:
        """The URL of a host that the prefix covers has its port and its path."""
        port = self.prefix.port
        return (port is None or name == f"{host}:{port}") and path.startswith(self.prefix.path)


class Sites:
    """The settings of every URL. Building reads the variables of passwords; a look-up costs 1 µs, without sites nothing."""

    def __init__(self, options: FetchOptions, sites: Iterable[Site] = ()) -> None:
        """Raises: OrderError for a prefix, a header or a proxy that makes no sense, and for a variable that is not set."""
        self.usual = SiteSettings(
            headers=MappingProxyType(_checked(options.headers, "[fetch]")),
            proxy=_proxy(options.proxy, options.proxy_password_env, "[fetch]"),
            cookies=options.cookies,
            timeout_s=options.timeout_s,
            max_body_bytes=options.max_body_bytes,
        )
        rules = [rule for number, site in enumerate(sites, 1) for rule in _rules(site, f"[[site]] {number}")]
        self._hosts: HostTable[tuple[_Rule, ...]] = HostTable()
        for rule in sorted(rules, key=lambda rule: rule.rank):  # stable: of equal ones the later stays behind
            whole = SurtPrefix(rule.prefix.host, rule.prefix.with_subdomains)
            self._hosts.put(whole, (*(self._hosts.get(whole.host) or ()), rule))

    def of(self, url: str) -> SiteSettings:
        """The settings of an absolute URL."""
        if not len(self._hosts):
            return self.usual
        found = authority(url)
        settings = self.usual
        for rule in (found and self._hosts.get(found.host)) or ():
            assert found is not None
            if rule.covers(found.name, found.host, path_of(url)):
                settings = _changed(settings, rule.changes)
        return settings


def check_header(name: str, value: str) -> None:
    """Raises: ValueError, one line, if it could not be sent or is not the operator's to set. The value is not shown."""
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a header")
    if name.lower() in _OURS:
        raise ValueError(f"the header {name} is set by the crawler; see the keys user, cookies, accept_encoding, referer")
    if not is_sendable(value):
        raise ValueError(f"the header {name} has a value that cannot be sent; it must be printable ASCII")


def _changed(settings: SiteSettings, changes: Mapping[str, object]) -> SiteSettings:
    values = settings._asdict() | changes
    values["headers"] = MappingProxyType(_over(settings.headers, changes.get("headers")))
    return SiteSettings(**values)


def _over(usual: Mapping[str, str], own: object) -> dict[str, str]:
    """Headers by name in any case; the own ones win."""
    assert own is None or isinstance(own, Mapping)
    merged = {name.lower(): (name, value) for headers in (usual, own or {}) for name, value in headers.items()}
    return dict(merged.values())


def _rules(site: Site, entry: str) -> Sequence[_Rule]:
    if not site.surts:
        raise OrderError(f"{entry} surt: names no SURT prefix; say where it holds")
    headers = _checked(site.headers, entry)
    if site.user:
        headers["Authorization"] = basic_auth(site.user, _password(site.password_env, f"{entry} password_env"))
    elif site.password_env:
        raise OrderError(f"{entry} password_env: there is no user; give one")
    changes: dict[str, object] = {
        "cookies": site.cookies,
        "timeout_s": site.timeout_s,
        "max_body_bytes": site.max_body_bytes,
        "headers": headers or None,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if site.proxy is not None:
        changes["proxy"] = _proxy(site.proxy, site.proxy_password_env, entry)
    if not changes:
        raise OrderError(f"{entry}: it changes nothing")
    try:
        return [_Rule(parse_surt(text), changes) for text in site.surts]
    except PolicyError as error:
        raise OrderError(f"{entry} surt: {error}") from error


def _checked(headers: Mapping[str, str], entry: str) -> dict[str, str]:
    for name, value in headers.items():
        try:
            check_header(name, value)
        except ValueError as error:
            raise OrderError(f"{entry} headers: {error}") from error
    return dict(headers)


def _proxy(text: str, password_env: str, entry: str) -> Proxy | None:
    if not text:
        return None
    password = _password(password_env, f"{entry} proxy_password_env") if password_env else ""
    try:
        return parse_proxy(text, password)
    except ValueError as error:
        raise OrderError(f"{entry} proxy: {error}") from error


def _password(variable: str, key: str) -> str:
    """Raises: OrderError if the variable is not set."""
    if not variable:
        return ""
    password = os.environ.get(variable)
    if password is None:
        raise OrderError(f"{key}: the variable {variable} is not set; it must hold the password")
    return password
