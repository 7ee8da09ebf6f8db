"""The pages and their URLs. Pure.

Page 0 is the seed. With 60 links a page, page i links to pages 60 i + 1 to 60 i + 60, so that a crawl by links reaches all, and
where these are beyond the last one to pages strewn over the site: most links of a crawl lead to known pages, as in the web.

A site with `known` URLs is the middle of a long crawl: page i leads to one page, i + 64, so that a crawl begins with the first
64, and its other links are strewn over URLs that are no pages, which the crawler knows already.

Hosts are loopback addresses, 127.0.1.1, 127.0.1.2 …, or names that the crawlers' settings resolve to 127.0.0.1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

PAGE_BYTES = 12_000

#: A scattering step without a common factor with usual numbers of pages.
_STREWN = 7_919
_STREWN_FAR = 6_700_417
#: Pages that a crawl of a site with known URLs begins with.
CHAINS = 64
#: Where all names are.
NAMED_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Its size, and the names of its hosts."""

    pages: int
    hosts: int = 1
    links: int = 60  #: on a page
    is_named: bool = False  #: hosts are names, `host_name`, and no addresses
    known: int = 0  #: URLs that are no pages, to which all links of a page lead but one

    @property
    def text(self) -> str:
        """For the command line of a server; `read` is the inverse."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Site:
        return cls(**json.loads(text))


def addresses(site: Site) -> list[str]:
    """The addresses of a server: a loopback address for each host, 250 per subnet, or one for all names."""
    if site.is_named:
        return [NAMED_ADDRESS]
    return [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(site.hosts)]


def host_names(site: Site) -> list[str]:
    """The hosts' names; none if they are addresses."""
    return [f"h{number:03d}.bench.test" for number in range(site.hosts)] if site.is_named else []


def origins(site: Site, port: int) -> list[str]:
    """The origin of each host."""
    return [f"http://{host}:{port}" for host in host_names(site) or addresses(site)]


def path(number: int) -> str:
    """The URL of a page on this origin."""
    return f"/pages/{number}.html"


def number_at(place: str) -> int | None:
    """The page at this path; None if there is none."""
    digits = place.removeprefix("/pages/").removesuffix(".html")
    return int(digits) if digits.isdecimal() and path(int(digits)) == place else None


def origin(number: int, origins: Sequence[str]) -> str:
    """Consecutive pages are on different hosts."""
    return origins[number % len(origins)]


def links(number: int, site: Site) -> list[int]:
    """The pages that a page links to."""
    first = site.links * number + 1
    targets = range(first, first + site.links)
    return [target if target < site.pages else target * _STREWN % site.pages for target in targets]


def known_path(number: int) -> str:
    """One of the known URLs."""
    return f"/known/{number}.html"


def targets(number: int, site: Site, origins: Sequence[str]) -> list[str]:
    """The URLs that a page links to."""
    if not site.known:
        return [origin(target, origins) + path(target) for target in links(number, site)]
    first = number * (site.links - 1)
    strewn = (place * _STREWN_FAR % site.known for place in range(first, first + site.links - 1))
    next_one = [origin(number + CHAINS, origins) + path(number + CHAINS)] if number + CHAINS < site.pages else []
    return next_one + [origin(one, origins) + known_path(one) for one in strewn]


def html(number: int, site: Site, origins: Sequence[str]) -> bytes:
    """A page: absolute links between words, filled up to 12 KB."""
    anchors = (
        f'<li><a href="{target}">page {place}</a> of the site, and what it is about</li>'
        for place, target in enumerate(targets(number, site, origins))
    )
    text = f"<!doctype html><html><head><title>Page {number}</title></head><body><ul>{''.join(anchors)}</ul><p>"
    words = "a page of a benchmark is made of words that nobody reads; "
    missing = PAGE_BYTES - len(text) - len(_END)
    return (text + (words * (missing // len(words) + 1))[: max(missing, 0)] + _END).encode()


_END = "</p></body></html>"
