"""What is different for a part of the web: headers, credentials, cookies, proxy, limits ([[site]] in the order).

A site names its part by SURT prefixes. Of several that cover a URL the longest wins, for each setting by itself (headers: for
each name by itself); of equal ones the later. All is worked out when the table is built. Passwords stand in environment
variables only: neither the order that is kept in the job nor a log ever holds one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from anabranch.crawler.fetching.options import FetchOptions, Limits, Site, check_header
from anabranch.crawler.fetching.proxies import Proxy, basic_auth, parse_proxy
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.authority import authority, path_of
from anabranch.frontier.policies.hosttable import HostTable
from anabranch.frontier.policies.surt import SurtPrefix, parse_surt


class SiteSettings(NamedTuple):
    """What holds for one URL."""

    headers: Mapping[str, str]  #: with the credentials of the site
    proxy: Proxy | None
    cookies: bool
    limits: Limits


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
            limits=Limits(options.timeout_s, options.max_body_bytes),
        )
        rules = [
            rule
            for number, site in enumerate(sites, 1)
            for rule in _rules(site, f"[[site]] {number}", options.timeout_s)
        ]
        self._is_empty = not rules
        self._hosts: HostTable[tuple[_Rule, ...]] = HostTable()
        for rule in sorted(rules, key=lambda rule: rule.rank):  # stable: of equal ones the later stays behind
            whole = SurtPrefix(rule.prefix.host, rule.prefix.with_subdomains)
            self._hosts.put(whole, (*(self._hosts.get(whole.host) or ()), rule))

    def of(self, url: str) -> SiteSettings:
        """The settings of an absolute URL."""
        if self._is_empty:
            return self.usual
        found = authority(url)
        settings = self.usual
        for rule in (found and self._hosts.get(found.host)) or ():
            assert found is not None
            if rule.covers(found.name, found.host, path_of(url)):
                settings = _changed(settings, rule.changes)
        return settings


def _changed(settings: SiteSettings, changes: Mapping[str, object]) -> SiteSettings:
    values = settings._asdict() | dict(changes)
    values["headers"] = MappingProxyType(_over(settings.headers, changes.get("headers")))
    return SiteSettings(**values)


def _over(usual: Mapping[str, str], own: object) -> dict[str, str]:
    """Headers by name in any case; the own ones win."""
    assert own is None or isinstance(own, Mapping)
    merged = {name.lower(): (name, value) for headers in (usual, own or {}) for name, value in headers.items()}
    return dict(merged.values())


def _rules(site: Site, entry: str, timeout_s: float) -> Sequence[_Rule]:
    if not site.surts:
        raise OrderError(f"{entry} surt: names no SURT prefix; say where it holds")
    headers = _checked(site.headers, entry)
    if site.user:
        headers["Authorization"] = basic_auth(site.user, _password(site.password_env, f"{entry} password_env"))
    elif site.password_env:
        raise OrderError(f"{entry} password_env: there is no user; give one")
    changes: dict[str, object] = {
        "cookies": site.cookies,
        "limits": None if site.max_body_bytes is None else Limits(timeout_s, site.max_body_bytes),
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
