"""Settings and limits of fetches: the order's [fetch] as `FetchOptions`, and its [[site]] entries for parts of the web.

A site names a part of the web by SURT prefixes. Of several that cover a URL the longest wins, for each setting and each header
by itself; of equal ones the later. Passwords and secret headers are read from environment variables, or from files that only
their owner may read: no order or log ever holds one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from anabranch.crawler.fetch.proxy import Proxies, basic_auth, parse_proxies
from anabranch.crawler.fetch.secrets import (
    LEAST_SECRET_CHARS,
    RESERVED,
    TOKEN,
    Credentials,
    Login,
    Secrets,
    is_sendable,
    password,
    read_secret,
    secret_headers,
    secrets_of,
)
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.frontier import HostTable
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import SurtPrefix, authority, parse_surt, path_of

#: The Accept header of every request.
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

#: Header that has a key of its own in the order -> the key.
_KEYS = MappingProxyType(
    {
        "accept-encoding": "[fetch] accept_encoding",
        "authorization": "user and password_env of a [[site]]",
        "cookie": "[fetch] cookie_file, and secret_headers of a [[site]]",
        "if-modified-since": "[fetch] conditional",
        "if-none-match": "[fetch] conditional",
        "proxy-authorization": "[fetch] proxy and proxy_password_env",
        "referer": "[fetch] referer",
        "user-agent": "[agent] user_agent (--user-agent)",
    }
)


class Validators(NamedTuple):
    """The version of an earlier answer, for a conditional GET (RFC 9110 section 13.1)."""

    etag: str = ""  #: the ETag, with its quotes; empty = none
    last_modified: str = ""  #: the Last-Modified field; empty = none

    def headers(self) -> dict[str, str]:
        """If-None-Match and If-Modified-Since, without values that cannot be sent unchanged."""
        named = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in named.items() if value and is_sendable(value)}


class FetchLimits(NamedTuple):
    """The most that one fetch may cost."""

    timeout_s: float  #: in all: name, connection, headers, body
    max_body_bytes: int  #: as they come, coded

    def and_also(self, other: FetchLimits) -> FetchLimits:
        """The narrower of both."""
        return FetchLimits(min(self.timeout_s, other.timeout_s), min(self.max_body_bytes, other.max_body_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """The settings of every fetch; a `SiteOptions` may change some of them."""

    user_agent: str
    timeout_s: float = 60.0  #: for one fetch in all: name, connection, headers, body
    connect_timeout_s: float = 10.0  #: for one address: TCP and TLS
    first_byte_timeout_s: float = 20.0  #: from the request's end to the answer's first byte
    read_timeout_s: float = 20.0  #: between two reads
    min_rate: int = 100  #: body bytes per second, over at least `rate_window_s`; 0 = no minimum
    rate_window_s: float = 10.0  #: also how long a body may take before its rate is checked
    max_body_bytes: int = 16 << 20  #: as they come, coded
    accept_encoding: tuple[str, ...] = ("gzip", "deflate", "br", "zstd")  #: requested if they can be decoded here
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  #: sent with each request
    cookies: bool = False  #: kept, and sent back to their site
    redact: Literal["all", "secrets", "none"] = "secrets"  #: whose logins archives hide
    referer: bool = False  #: send the page that links to the URL
    proxy: str | Sequence[str] = ()  #: `http://host:port`, `https://…`, `socks5://…`, or `env`; several in turn
    proxy_password_env: str | Sequence[str] = ()  #: variable with the proxy's password; of several, one each
    bind: Sequence[str] = ()  #: the addresses of this machine that connections come from; none: the system chooses
    proxy_resolves: bool = False  #: proxies look names up, and refuse private addresses; needed without `allow_private`
    tls_verify: bool = True
    tls_old: bool = True
    ipv4: bool = True
    ipv6: bool = True
    allow_private: bool = False  #: loopback and private addresses may be fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """One [[site]] entry: where it holds, and its settings; None or empty = unchanged."""

    surts: tuple[str, ...]  #: SURT prefixes, see `frontier.policies.hosts.parse_surt`
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: Name -> where its value is.
    secret_headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    user: str = ""  #: of basic authentication (RFC 7617), or digest (RFC 7616)
    auth: Literal["basic", "digest"] = "basic"
    login_page: str = ""  #: URL of a page with the form of a login; empty = there is none
    login_fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  #: name -> value
    #: Name -> where its value is.
    login_secrets: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    login_success: str = ""  #: a text of the page behind the login; empty = the form is gone
    #: A text of pages for those who are not logged in; empty = 401 and redirects to the form alone.
    login_lost: str = ""
    password_env: str = ""  #: variable with the user's password
    proxy: str | Sequence[str] | None = None  #: as in `FetchOptions`; "" = none here
    proxy_password_env: str | Sequence[str] = ()
    cookies: bool | None = None
    max_body_bytes: int | None = None


def header_table(headers: object) -> object:
    """Headers as a table, if they are a list of `Name: value`. Raises: ValueError, one line without a value."""
    if not isinstance(headers, list | tuple):
        return headers
    table: dict[str, str] = {}
    for number, line in enumerate(headers, 1):
        name, colon, value = line.partition(":") if isinstance(line, str) else ("", "", "")
        if not colon:
            raise ValueError(f"must be like 'Accept-Language: de'; number {number} has no name and colon")
        if name in table:
            raise ValueError(f"has the header {name} twice; give it once, with commas between its values")
        table[name] = value.strip(" \t")
    return table


def checked_headers(headers: Mapping[str, str], *, of_site: bool = False) -> Mapping[str, str]:
    """The headers. Only those of a [[site]] may have a User-Agent.

    Raises: ValueError, one line without a value, for a header that cannot be sent, is given twice, or has its own key.
    """
    known: set[str] = set()
    for name, value in headers.items():
        if not TOKEN.fullmatch(name):
            raise ValueError(f"has {name!r}, which is no name of a header")
        if name.lower() in _KEYS and not (of_site and name.lower() == "user-agent"):
            raise ValueError(f"must not have {name}, which has its own key: {_KEYS[name.lower()]}")
        if name.lower() in RESERVED:
            raise ValueError(f"must not have {name}, which only the crawler itself sets; leave it out")
        if not is_sendable(value):
            raise ValueError(f"has a value for {name} that cannot be sent; it must be printable ASCII")
        if name.lower() in known:
            raise ValueError(f"has the header {name} twice; give it once, with commas between its values")
        known.add(name.lower())
    return headers


class SiteSettings(NamedTuple):
    """The settings of one URL."""

    headers: Mapping[str, str]  #: including the site's credentials
    proxies: Proxies
    cookies: bool
    limits: FetchLimits
    secrets: Secrets | None = None  #: None: there is no login
    digest: Credentials | None = None  #: for digest authentication
    login: Login | None = None  #: by a form


class _Rule(NamedTuple):
    prefix: SurtPrefix
    changes: Mapping[str, object]  #: fields of `SiteSettings`

    @property
    def rank(self) -> tuple[int, bool, bool, int]:
        """The higher, the longer the prefix."""
        prefix = self.prefix
        labels = prefix.host.count(".") + 1 if prefix.host else 0
        return labels, not prefix.with_subdomains, prefix.port is not None, len(prefix.path)


class Sites:
    """The settings of every URL. Reads the passwords' variables when built; a look-up costs 1 µs, without sites nothing."""

    def __init__(self, options: FetchOptions, sites: Iterable[SiteOptions] = ()) -> None:
        """Raises: OrderError for an invalid prefix, header or proxy, and for a variable that is not set."""
        sites = tuple(sites)
        for fault in proxy_faults(options, sites):
            raise OrderError(fault)
        _check_local(options.bind)
        self.usual = SiteSettings(
            headers=MappingProxyType(_checked(options.headers, "[fetch]", of_site=False)),
            proxies=_proxies(options.proxy, options.proxy_password_env, "[fetch]"),
            cookies=options.cookies,
            limits=FetchLimits(options.timeout_s, options.max_body_bytes),
        )
        rules = [
            rule
            for number, site in enumerate(sites, 1)
            for rule in _rules(site, f"[[site]] {number}", options.timeout_s)
        ]
        self._is_empty = not rules
        self.has_logins = any("login" in rule.changes for rule in rules)
        found = [self.usual.proxies, *(rule.changes.get("proxies") for rule in rules)]
        self.choices = [one for one in found if isinstance(one, Proxies)]  #: all that any URL has
        self._hosts: HostTable[tuple[_Rule, ...]] = HostTable()
        rules.sort(key=lambda rule: rule.rank)  # stable: of equal ones the later stays last, and so wins
        for rule in rules:
            whole = SurtPrefix(rule.prefix.host, rule.prefix.with_subdomains)
            self._hosts.put(whole, (*(self._hosts.get(whole.host) or ()), rule))
        self._check_login_pages(sites)

    def of(self, url: str) -> SiteSettings:
        """The settings of an absolute URL."""
        if self._is_empty:
            return self.usual
        found = authority(url)
        settings = self.usual
        for rule in (found and self._hosts.get(found.host)) or ():
            assert found is not None
            port = rule.prefix.port  # its host is covered already
            if (port is None or found.name == f"{found.host}:{port}") and path_of(url).startswith(rule.prefix.path):
                settings = _changed(settings, rule.changes)
        return settings

    def _check_login_pages(self, sites: Iterable[SiteOptions]) -> None:
        """Raises: OrderError for a login whose page is outside its own prefixes."""
        for number, site in enumerate(sites, 1):
            if site.login_page and self.of(site.login_page).login is None:
                raise OrderError(
                    f"[[site]] {number} login_page: {site.login_page} is outside its surt, so it would get no cookies; "
                    "add its host to surt"
                )


def _changed(settings: SiteSettings, changes: Mapping[str, object]) -> SiteSettings:
    values = settings._asdict() | dict(changes)
    if isinstance(headers := changes.get("headers"), Mapping):
        by_name = {name.lower(): (name, value) for name, value in (*settings.headers.items(), *headers.items())}
        values["headers"] = MappingProxyType(dict(by_name.values()))
    if settings.secrets is not None and isinstance(more := changes.get("secrets"), Secrets):
        values["secrets"] = Secrets(settings.secrets.fields | more.fields, settings.secrets.values | more.values)
    return SiteSettings(**values)


def _rules(site: SiteOptions, entry: str, timeout_s: float) -> Sequence[_Rule]:
    if not site.surts:
        raise OrderError(f"{entry} surt: names no SURT prefix; say where it holds")
    changes: dict[str, object] = {
        "limits": None if site.max_body_bytes is None else FetchLimits(timeout_s, site.max_body_bytes),
        **_login_changes(site, entry),
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if site.proxy is not None:
        changes["proxies"] = _proxies(site.proxy, site.proxy_password_env, entry)
    if not changes:
        raise OrderError(f"{entry}: it changes nothing")
    try:
        return [_Rule(parse_surt(text), changes) for text in site.surts]
    except PolicyError as error:
        raise OrderError(f"{entry} surt: {error}") from error


def _login_changes(site: SiteOptions, entry: str) -> dict[str, object]:
    """The headers, secrets and credentials of an entry; None where it has none. Raises: OrderError."""
    headers = _checked(site.headers, entry, of_site=True)
    hidden = secret_headers(site.secret_headers, f"{entry} secret_headers")
    _check_sources(site, {name.lower() for name in headers}, {name.lower() for name in hidden}, entry)
    user = Credentials(site.user, password(site.password_env, f"{entry} password_env")) if site.user else None
    digest = user if site.auth == "digest" else None
    if user is not None and digest is None:
        hidden["Authorization"] = basic_auth(*user)
    login, secrets = _login(site, entry), secrets_of(hidden) if hidden or user else None
    found: dict[str, object] = {
        "headers": headers | hidden or None,
        "secrets": secrets,
        "digest": digest,
        "cookies": site.cookies,
    }
    if login is not None:
        known = secrets or Secrets()
        found |= {"login": login, "cookies": True, "secrets": Secrets(known.fields, known.values | login.passwords)}
    return found


def _login(site: SiteOptions, entry: str) -> Login | None:
    """The login by a form. Raises: OrderError."""
    hidden = {name: read_secret(place, f"{entry} login_secrets", "value") for name, place in site.login_secrets.items()}
    fields = {**site.login_fields, **hidden}
    if not site.login_page:
        if fields or site.login_success or site.login_lost:
            raise OrderError(f"{entry} login_page: is missing; it must be the URL of the page with the form")
        return None
    if not fields:
        raise OrderError(
            f"{entry} login_fields: names no field of the form; give the user, and login_secrets for the password"
        )
    passwords = frozenset(text.encode() for text in hidden.values() if len(text) >= LEAST_SECRET_CHARS)
    return Login(site.login_page, tuple(fields.items()), site.login_success, site.login_lost, passwords)


def _check_sources(site: SiteOptions, headers: Set[str], hidden: Set[str], entry: str) -> None:
    """Raises: OrderError if a header has two sources, or a password no user."""
    if headers & hidden:
        raise OrderError(f"{entry}: {min(headers & hidden)} is in headers and in secret_headers; leave one of them out")
    if site.user and "authorization" in hidden:
        raise OrderError(f"{entry}: user and secret_headers both give the Authorization; leave one of them out")
    if site.password_env and not site.user:
        raise OrderError(f"{entry} password_env: there is no user; give one")


def _checked(headers: Mapping[str, str], entry: str, *, of_site: bool) -> dict[str, str]:
    try:
        return dict(checked_headers(headers, of_site=of_site))
    except ValueError as error:
        raise OrderError(f"{entry} headers {error}") from error


def _check_local(addresses: Iterable[str]) -> None:
    """Raises: OrderError for one that is not of this machine: every connection would fail."""
    for address in addresses:
        try:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as tried:
                tried.bind((address, 0))
        except OSError as error:
            raise OrderError(f"[fetch] bind: {address} is no address of this machine ({error.strerror})") from error


def proxy_faults(options: FetchOptions, sites: Iterable[SiteOptions]) -> Iterator[str]:
    """A line for each proxy that private addresses could be fetched through unnoticed, against `allow_private`."""
    if options.allow_private or options.proxy_resolves:
        return
    proxies = [
        ("[fetch]", options.proxy),
        *((f"[[site]] {number}", site.proxy) for number, site in enumerate(sites, 1)),
    ]
    for entry, proxy in proxies:
        if proxy:
            yield (
                f"{entry} proxy: the proxy looks names up, so private addresses cannot be refused here; if the proxy refuses "
                "them, set [fetch] proxy_resolves = true (-s fetch.proxy_resolves=true), else allow them (--allow-private)"
            )


def _proxies(proxy: str | Sequence[str], password_env: str | Sequence[str], entry: str) -> Proxies:
    texts, variables = ([one] if isinstance(one, str) else list(one) for one in (proxy, password_env))
    texts, variables = [text for text in texts if text], variables if any(variables) else []
    if len(variables) > 1 and len(variables) != len(texts):
        raise OrderError(
            f"{entry} proxy_password_env: {len(variables)} variables for {len(texts)} proxies; name one for each"
        )
    variables = variables * len(texts) if len(variables) == 1 else variables
    passwords = [password(variable, f"{entry} proxy_password_env") for variable in variables]
    try:
        return parse_proxies(texts, passwords)
    except ValueError as error:
        raise OrderError(f"{entry} proxy: {error}") from error
