"""What a crawl order says of hosts before anything is fetched: how robots are taken, and where names are looked up."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from anabranch.crawler.network.addresses import hosts_key, ip_literal
from anabranch.crawler.network.lookups import MAX_TTL_S, MIN_TTL_S, ResolverOptions
from anabranch.crawler.orders.quantities import exact_duration
from anabranch.crawler.orders.types import Duration, Endpoint, Name, Section
from anabranch.crawler.urls.parsing import canonical, host_of

#: RFC 9309 section 2.4: rules should not be used for longer.
_DAY_S = 24 * 3600.0
#: What a name and each of its labels may have (RFC 1035 section 2.3.4).
_NAME_CHARS = 253
_LABEL_CHARS = 63


def _matching(name: str) -> str:
    """A name of the table, if a URL's host can be it: a wildcard is `*.` and a name, nothing else has a star."""
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
    """No label of the name is empty or too long, nor is the name."""
    return len(name) <= _NAME_CHARS and all(
        0 < len(label) <= _LABEL_CHARS for label in name.removesuffix(".").split(".")
    )


def _without_doubles(hosts: dict[str, str]) -> dict[str, str]:
    """The table, if each of its names is there once: letter case and a last dot make no other name."""
    known: dict[str, str] = {}
    for name in hosts:
        first = known.setdefault(hosts_key(name), name)
        if first != name:
            raise ValueError(f"has the same name twice, {first} and {name}; keep one of them")
    return hosts


#: What the table of fixed answers is asked by.
_HostName = Annotated[Name, AfterValidator(_matching)]


class RobotsSection(Section):
    """How robots.txt is taken, and what pages say to robots."""

    robots: Literal["obey", "ignore"] = "obey"  #: ignore is for your own sites
    max_crawl_delay_s: Duration = Field(default=300.0, alias="max_crawl_delay")  #: a longer Crawl-delay is cut
    cache_s: Annotated[Duration, Field(gt=0, le=_DAY_S)] = Field(
        default=_DAY_S, alias="cache"
    )  #: then robots.txt is asked for again; a day at most
    unreachable_s: Annotated[Duration, Field(gt=0)] = Field(
        default=3600.0, alias="unreachable"
    )  #: a host whose robots.txt cannot be had is given up for so long
    meta: bool = True  #: obey nofollow of meta robots and X-Robots-Tag
    nofollow_links: bool = False  #: leave out links with rel=nofollow, too


class DnsSection(Section):
    """Where names are looked up, and for how long an answer holds."""

    servers: tuple[Endpoint, ...] = ()  #: name servers, `ip[:port]`; none: the system's
    hosts: Annotated[dict[_HostName, Endpoint], AfterValidator(_without_doubles)] = Field(
        default_factory=dict
    )  #: fixed answers: name -> `ip[:port]`; `*.NAME` is every name below NAME
    timeout_s: Annotated[Duration, Field(gt=0)] = Field(default=3.0, alias="timeout")  #: per question
    min_ttl_s: Duration = Field(default=MIN_TTL_S, alias="min_ttl")  #: an answer is kept at least so long
    max_ttl_s: Duration = Field(default=MAX_TTL_S, alias="max_ttl")  #: and at most so long

    @model_validator(mode="after")
    def _without_contradiction(self) -> Self:
        if self.min_ttl_s > self.max_ttl_s:
            most, least = exact_duration(self.max_ttl_s), exact_duration(self.min_ttl_s)
            words = f"max_ttl ({most}) is less than min_ttl ({least}); raise the one or lower the other"
            raise _contradiction(words, "max_ttl", "min_ttl")
        return self

    def options(self, *, ipv4: bool, ipv6: bool) -> ResolverOptions:
        """What the resolver is told beside servers, hosts and time; the families are those that may be fetched from."""
        return ResolverOptions(ipv4=ipv4, ipv6=ipv6, min_ttl_s=self.min_ttl_s, max_ttl_s=self.max_ttl_s)


def _contradiction(words: str, *keys: str) -> PydanticCustomError:
    """What is wrong between the keys; the line names the one that was given."""
    return PydanticCustomError("contradiction", "{words}", {"keys": keys, "words": words})
