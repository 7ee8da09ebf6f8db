"""What is on the pages. Pure.

Page 0 is the seed. With 60 links a page, page i links to pages 60 i + 1 to 60 i + 60, so that a crawl by links reaches all, and
where these are beyond the last one to pages strewn over the site: most links of a crawl lead to known pages, as in the web.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAGE_BYTES = 12_000

#: A step that strews, and has no factor in common with counts of pages that people choose.
_STREWN = 7_919


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """How large it is."""

    pages: int
    hosts: int = 1
    links: int = 60  #: on a page


def path(number: int) -> str:
    """Where a page is, on the host that `origin` says."""
    return f"/pages/{number}.html"


def origin(number: int, origins: Sequence[str]) -> str:
    """Pages go round the hosts; neighbours are on different ones."""
    return origins[number % len(origins)]


def links(number: int, site: Site) -> list[int]:
    """The pages that a page links to."""
    first = site.links * number + 1
    targets = range(first, first + site.links)
    return [target if target < site.pages else target * _STREWN % site.pages for target in targets]


def html(number: int, site: Site, origins: Sequence[str]) -> bytes:
    """A page: absolute links between words, filled up to 12 KB."""
    anchors = (
        f'<li><a href="{origin(target, origins)}{path(target)}">page {target}</a> of the site, and what it is about</li>'
        for target in links(number, site)
    )
    text = f"<!doctype html><html><head><title>Page {number}</title></head><body><ul>{''.join(anchors)}</ul><p>"
    words = "a page of a benchmark is made of words that nobody reads; "
    missing = PAGE_BYTES - len(text) - len(_END)
    return (text + (words * (missing // len(words) + 1))[: max(missing, 0)] + _END).encode()


_END = "</p></body></html>"
