"""Sections of one fetch: [dns], [robots], [fetch] with its entries [[site]], and [extract].

An order has no passwords, because the job's folder keeps it: `password_env` names the variable that holds one.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from anabranch.crawler.extract.link_attributes import named_attribute
from anabranch.crawler.extract.links import ExtractOptions
from anabranch.crawler.fetch.addresses import (
    MAX_STALE_S,
    MAX_TTL_S,
    MIN_TTL_S,
    ResolverOptions,
    hosts_key,
    ip_literal,
)
from anabranch.crawler.fetch.options import FetchOptions, SiteOptions, checked_headers, header_table
from anabranch.crawler.fetch.proxy import ENVIRONMENT, parse_proxy
from anabranch.crawler.order.values import (
    Count,
    Duration,
    Endpoint,
    FileOrNone,
    Name,
    Positive,
    PositiveDuration,
    PositiveSize,
    Prefixes,
    Section,
    Size,
    UserFunctionName,
    check_bounds,
    contradiction,
)
from anabranch.crawler.outcomes.failures import NAME_RETRIES_S
from anabranch.crawler.urls.parsing import canonical, host_of

#: RFC 9309 section 2.4: rules should not be used for longer.
_DAY_S = 24 * 3600.0
#: Longest name and longest label (RFC 1035 section 2.3.4).
_NAME_CHARS = 253
_LABEL_CHARS = 63


def _checked_host(name: str) -> str:
    """Refuse a name that no URL's host can be. A wildcard is `*.` and a name; no other name has a star."""
    star, bare = ("*.", name[2:]) if name.startswith("*.") else ("", name)
    if "*" in bare or not bare:
        raise ValueError("would match no host; write *. and a name, like *.example.org")
    tried = f"x.{bare}" if star else bare
    url = canonical(f"http://{tried}/")
    host = tried if url is None else host_of(url)
    if ip_literal(host) is not None:
        raise ValueError("would match no host; an address is never looked up, write a host's name")
    if not _is_resolvable(tried):
        raise ValueError(
            f"would match no host; between its dots a name has 1 to {_LABEL_CHARS} characters, {_NAME_CHARS} in all"
        )
    if url is None or "//" in bare:
        raise ValueError("would match no host; write a host's name, or *. and a name, like *.example.org")
    if host != tried.lower():
        raise ValueError(f"would match no host; write {star}{host.removeprefix('x.' if star else '')}")
    return name


def _is_resolvable(name: str) -> bool:
    labels = name.removesuffix(".").split(".")
    return len(name) <= _NAME_CHARS and all(0 < len(label) <= _LABEL_CHARS for label in labels)


def _unique_hosts(hosts: dict[str, str]) -> dict[str, str]:
    """Refuse a table that has a name twice; letter case and a final dot do not count."""
    known: dict[str, str] = {}
    for name in hosts:
        first = known.setdefault(hosts_key(name), name)
        if first != name:
            raise ValueError(f"has the same name twice, {first} and {name}; keep one of them")
    return hosts


_HostName = Annotated[Name, AfterValidator(_checked_host)]


class RobotsSection(Section):
    """Whether robots.txt and the robots rules of pages are obeyed."""

    robots: Literal["obey", "ignore"] = "obey"  #: ignore is for your own sites
    max_crawl_delay_s: Duration = 300.0  #: a longer Crawl-delay is cut
    cache_s: Annotated[Duration, Field(gt=0, le=_DAY_S)] = _DAY_S  #: then robots.txt is asked for again; a day at most
    unreachable_s: PositiveDuration = 3600.0  #: a host with an unavailable robots.txt is given up for so long
    allow_tries: Count = 0  #: failed tries of a robots.txt after which all is allowed on its host; 0: never
    allow_after_s: Duration = 30 * _DAY_S  #: if the first of them was at least so long ago
    meta: bool = True  #: obey nofollow of meta robots and X-Robots-Tag
    nofollow_links: bool = False  #: leave out links with rel=nofollow, too


class DnsSection(Section):
    """The servers that look names up, and the time for which their answers are kept."""

    servers: tuple[Endpoint, ...] = ()  #: name servers, `ip[:port]`; none: the system's
    hosts: Annotated[dict[_HostName, Endpoint], AfterValidator(_unique_hosts)] = Field(
        default_factory=dict
    )  #: fixed answers: name -> `ip[:port]`; `*.NAME` is every name below NAME
    timeout_s: PositiveDuration = 3.0  #: per question
    min_ttl_s: Duration = MIN_TTL_S  #: an answer is kept at least so long
    max_ttl_s: Duration = MAX_TTL_S  #: and at most so long
    max_stale_s: Duration = MAX_STALE_S  #: and for so long after that, while no name server answers

    @model_validator(mode="after")
    def _without_contradiction(self) -> Self:
        check_bounds(self, "min_ttl", "max_ttl")
        return self

    def options(self, *, ipv4: bool, ipv6: bool) -> ResolverOptions:
        """The resolver's options; `ipv4` and `ipv6` allow these address families."""
        return ResolverOptions(
            ipv4=ipv4, ipv6=ipv6, min_ttl_s=self.min_ttl_s, max_ttl_s=self.max_ttl_s, max_stale_s=self.max_stale_s
        )


def _checked_proxy(text: str) -> str:
    if text and text != ENVIRONMENT:
        parse_proxy(text)
    return text


def _checked_page(text: str) -> str:
    page = canonical(text) if text else ""
    if page is None:
        raise ValueError(f"must be the URL of a page, like https://example.org/login; not {text!r}")
    return page


def _checked_local_address(text: str) -> str:
    """Refuse what is no address. Whether it is one of this machine matters when a crawl begins, not where an order is read."""
    if ip_literal(text) is None:
        raise ValueError(f"must be addresses of this machine, like 192.0.2.7 or 2001:db8::7; not {text!r}")
    return text


_Headers = Annotated[dict[str, str], BeforeValidator(header_table), AfterValidator(checked_headers)]
_SiteHeaders = Annotated[
    dict[str, str], BeforeValidator(header_table), AfterValidator(partial(checked_headers, of_site=True))
]
_LocalAddress = Annotated[str, AfterValidator(_checked_local_address)]
#: A single text needs no brackets; an empty one is none.
_OneOrMore = BeforeValidator(lambda value: ((value,) if value else ()) if isinstance(value, str) else value)
_Proxies = Annotated[tuple[Annotated[str, AfterValidator(_checked_proxy)], ...], _OneOrMore]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]*$")]
_Variables = Annotated[tuple[_Variable, ...], _OneOrMore]
#: A variable, or a file.
_SecretPlace = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z_][A-Za-z0-9_]*|[^\x00-\x1f\x7f]*/[^\x00-\x1f\x7f]*)$")
]
_Coding = Literal["gzip", "deflate", "br", "zstd"]


class FetchSection(Section):
    """Settings and limits of every fetch."""

    timeout_s: PositiveDuration = 60.0  #: from start to last byte
    connect_timeout_s: PositiveDuration = 10.0  #: for one address, TLS included
    first_byte_timeout_s: PositiveDuration = 20.0  #: from the request's end to the answer's first byte
    read_timeout_s: PositiveDuration = 20.0  #: between two reads
    min_rate_bytes: Size = 100  #: body bytes per second over 10 s; 0: no matter how slow
    bandwidth_bytes: Size = 0  #: a second, of all workers of the job together, as read from sockets; 0: no cap
    host_bandwidth_bytes: Size = 0  #: the same of each host
    max_body_bytes: PositiveSize = 16 << 20  #: as they come; the rest is cut
    accept_encoding: tuple[_Coding, ...] = ("gzip", "deflate", "br", "zstd")  #: asked for if they can be undone here
    headers: _Headers = Field(default_factory=dict)  #: sent with each request; a table, or a list of `Name: value`
    cookies: bool = False  #: kept in the job, sent back to their site only
    cookie_file: FileOrNone = ""  #: a cookies.txt, read when a run begins and written back; sets cookies on
    referer: bool = False  #: send the page that a link was found on
    proxy: _Proxies = ()  #: http://host:port, https://…, socks5://… or `env`; several: in turn; none: hosts are dialled
    proxy_password_env: _Variables = ()  #: variable with the password of the proxy's user; of several, one for each
    #: Addresses of this machine that connections come from; none: the system chooses.
    bind: tuple[_LocalAddress, ...] = ()
    proxy_resolves: bool = False  #: proxies look names up, and refuse private addresses; needed without allow_private
    tls_verify: bool = True  #: certificates must be valid
    tls_old: bool = True  #: servers that offer only RSA key exchange or short keys are asked, too; the log notes it
    ipv4: bool = True  #: IPv4 addresses may be asked for and used
    ipv6: bool = True  #: the same for IPv6
    allow_private: bool = False  #: loopback and private addresses may be fetched
    body_rules: tuple[
        UserFunctionName, ...
    ] = ()  #: user functions that see a page's head, and may leave its body unread; after the entries [[body]]
    conditional: bool = True  #: pages of an earlier record are asked for only if they have changed
    name_retries_s: tuple[Duration, ...] = NAME_RETRIES_S  #: waits before a name that only times out is tried again
    outage_first_s: PositiveDuration = 60.0  #: a service that has not worked in this run is waited for so long
    outage_max_s: Duration = 24 * 3600.0  #: one that has; 0: for ever

    @model_validator(mode="after")
    def _with_a_family(self) -> FetchSection:
        if not (self.ipv4 or self.ipv6):
            raise contradiction("ipv4 and ipv6 are both off; leave one of them on", "ipv4", "ipv6")
        return self


class SiteEntry(Section):
    """An entry `[[site]]`: other values for the parts of the web under `surt`. None: the value of [fetch]."""

    surt: Prefixes  #: SURT prefixes, hosts or URLs
    headers: _SiteHeaders = Field(default_factory=dict)
    #: Name -> the variable with its value, or a file with a / in its path that only its owner may read (0600).
    secret_headers: dict[str, _SecretPlace] = Field(default_factory=dict)
    user: Annotated[str, StringConstraints(pattern=r"^[^:\x00-\x1f\x7f]*$")] = ""  #: of basic or digest authentication
    auth: Literal["basic", "digest"] = "basic"  #: how the user is told; digest never sends the password
    password_env: _Variable = ""  #: variable with the user's password
    login_page: Annotated[str, AfterValidator(_checked_page)] = ""  #: URL of the page with the form of a login
    login_fields: dict[str, str] = Field(default_factory=dict)  #: what is filled in, by the names of the form's fields
    login_secrets: dict[str, _SecretPlace] = Field(default_factory=dict)  #: passwords of the form, as secret_headers
    login_success: str = ""  #: a text of the page behind the login; none: the form is gone
    login_lost: str = ""  #: a text of pages for those who are not logged in; none: only 401, and redirects to the form
    proxy: _Proxies | None = None  #: "" = none here
    proxy_password_env: _Variables = ()
    cookies: bool | None = None
    max_body_bytes: PositiveSize | None = None


def fetch_options(section: FetchSection, user_agent: str) -> FetchOptions:
    """The fetcher's options."""
    values = dict(section) | {"cookies": section.cookies or bool(section.cookie_file)}
    for name in ("cookie_file", "body_rules", "conditional", "name_retries_s", "outage_first_s", "outage_max_s"):
        del values[name]  # they are not the fetcher's
    del values["bandwidth_bytes"], values["host_bandwidth_bytes"]  # of `Bandwidth`
    return FetchOptions(user_agent=user_agent, min_rate=values.pop("min_rate_bytes"), **values)


def site_of(entry: SiteEntry) -> SiteOptions:
    """The fetcher's record of a [[site]] entry."""
    values = dict(entry)
    return SiteOptions(surts=values.pop("surt"), **values)


def _checked_attribute(text: str) -> str:
    if named_attribute(text) is None:
        raise ValueError(f"must be ATTRIBUTE or ELEMENT/@ATTRIBUTE, like data-zoom or img/@data-zoom; not {text!r}")
    return text


_AttributeNames = Annotated[tuple[Annotated[str, AfterValidator(_checked_attribute)], ...], Field(max_length=100)]


class ExtractSection(Section):
    """Which links are read out of what was fetched, and what that may cost."""

    max_outlinks: Positive = 6000  #: links of a page; the others are counted in crawl.log (`dol:`)
    css: bool = True  #: style sheets, `<style>` and `style` attributes
    sitemaps: bool = False  #: sitemaps and feeds; those that robots.txt names, and /sitemap.xml of the seeds' hosts
    forms: bool = False  #: the targets of forms that are sent by GET
    speculative: bool = False  #: what looks like a URL in scripts and JSON
    data_attributes: bool = True  #: `data-src` and similar ones, by which scripts load images late
    embed_attributes: _AttributeNames = ()  #: further attributes with parts of the page, as in `["data-zoom", "img/@data-big"]`
    link_attributes: _AttributeNames = ()  #: further attributes with links to pages, as in `["data-href", "tr/@data-url"]`
    max_content_bytes: PositiveSize = 16 << 20  #: of a decoded body
    timeout_s: PositiveDuration = 10.0  #: for a document read in a helper process

    def options(self, *, robot: str, nofollow_links: bool = False, page_queries: bool = True) -> ExtractOptions:
        """The extractor's options; `robot` is the product's name, `nofollow_links` leaves out links with `rel=nofollow`."""
        return ExtractOptions(**dict(self), robot=robot, nofollow_links=nofollow_links, page_queries=page_queries)
