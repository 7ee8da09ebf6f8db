"""What a crawl order says of fetching: the section [fetch] and the entries [[site]].

No password stands in an order, since it is kept in the job's folder: `password_env` names the variable that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from anabranch.crawler.fetching.options import FetchOptions, Site, check_header
from anabranch.crawler.fetching.proxies import parse_proxy
from anabranch.crawler.orders.types import Duration, Name, Section, Size


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        check_header(name, value)
    return headers


def _checked_proxy(text: str) -> str:
    if text:
        parse_proxy(text)
    return text


def _listed(value: object) -> object:
    """One prefix need not stand in a list."""
    return (value,) if isinstance(value, str) else value


_Limit = Annotated[Duration, Field(gt=0)]
_Headers = Annotated[dict[str, str], AfterValidator(_checked_headers)]
_Proxy = Annotated[str, AfterValidator(_checked_proxy)]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]*$")]
_Coding = Literal["gzip", "deflate", "br", "zstd"]


class FetchSection(Section):
    """What every fetch does, and what it may cost."""

    timeout_s: _Limit = Field(default=60.0, alias="timeout")  #: from start to last byte
    connect_timeout_s: _Limit = Field(default=10.0, alias="connect_timeout")  #: for one address, TLS included
    first_byte_timeout_s: _Limit = Field(
        default=20.0, alias="first_byte_timeout"
    )  #: from the request's end to the answer's first byte
    read_timeout_s: _Limit = Field(default=20.0, alias="read_timeout")  #: between two reads
    min_rate_bytes: Size = Field(
        default=100, alias="min_rate"
    )  #: body bytes per second over 10 s; 0: no matter how slow
    max_body_bytes: Annotated[Size, Field(gt=0)] = Field(
        default=16 << 20, alias="max_body"
    )  #: as they come; the rest is cut
    accept_encoding: tuple[_Coding, ...] = ("gzip", "deflate", "br", "zstd")  #: asked for if they can be undone here
    headers: _Headers = Field(default_factory=dict)  #: sent with each request
    cookies: bool = False  #: kept in memory for the run, sent back to their site only
    referer: bool = False  #: the page a link was found on is told
    proxy: _Proxy = ""  #: http://host:port, https://… or socks5://…; none: hosts are dialled
    proxy_password_env: _Variable = ""  #: variable with the password of the proxy's user
    tls_verify: bool = True  #: certificates must be valid
    ipv4: bool = True  #: IPv4 addresses may be asked for and used
    ipv6: bool = True  #: the same for IPv6
    allow_private: bool = False  #: loopback and private addresses may be fetched
    conditional: bool = True  #: pages of an earlier record are asked for only if they have changed

    @model_validator(mode="after")
    def _with_a_family(self) -> FetchSection:
        if not (self.ipv4 or self.ipv6):
            raise PydanticCustomError(
                "contradiction", "ipv4 and ipv6 are both off; leave one of them on", {"keys": ("ipv4", "ipv6")}
            )
        return self


class SiteEntry(Section):
    """An entry `[[site]]`: what is different for the parts of the web that `surt` names. None: as [fetch] says."""

    surt: Annotated[tuple[Name, ...], BeforeValidator(_listed), Field(min_length=1)]  #: SURT prefixes, hosts or URLs
    headers: _Headers = Field(default_factory=dict)
    user: Annotated[str, StringConstraints(pattern=r"^[^:\x00-\x1f\x7f]*$")] = ""  #: of basic authentication
    password_env: _Variable = ""  #: variable with the user's password
    proxy: _Proxy | None = None  #: "" = none here
    proxy_password_env: _Variable = ""
    cookies: bool | None = None
    max_body_bytes: Annotated[Size, Field(gt=0)] | None = Field(default=None, alias="max_body")


def fetch_options(section: FetchSection, user_agent: str) -> FetchOptions:
    """The section as the fetcher has it."""
    return FetchOptions(
        user_agent=user_agent,
        timeout_s=section.timeout_s,
        connect_timeout_s=section.connect_timeout_s,
        first_byte_timeout_s=section.first_byte_timeout_s,
        read_timeout_s=section.read_timeout_s,
        min_rate=section.min_rate_bytes,
        max_body_bytes=section.max_body_bytes,
        accept_encoding=section.accept_encoding,
        headers=section.headers,
        cookies=section.cookies,
        referer=section.referer,
        proxy=section.proxy,
        proxy_password_env=section.proxy_password_env,
        tls_verify=section.tls_verify,
        ipv4=section.ipv4,
        ipv6=section.ipv6,
        allow_private=section.allow_private,
    )


def site_of(entry: SiteEntry) -> Site:
    """The entry as the fetcher has it."""
    return Site(
        surts=entry.surt,
        headers=entry.headers,
        user=entry.user,
        password_env=entry.password_env,
        proxy=entry.proxy,
        proxy_password_env=entry.proxy_password_env,
        cookies=entry.cookies,
        max_body_bytes=entry.max_body_bytes,
    )
