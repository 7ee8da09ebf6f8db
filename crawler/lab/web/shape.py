"""A made web: every page is computed from its URL and the seed, so nothing is kept for each page.

Reachable from the seeds is every URL, whatever fails: the pages of a host form a tree below its `/`, each linking to
`FAN_OUT` more; the hosts form trees below the seeds, each with links to the first pages of some more; every embed belongs to
a page. Only URLs that nothing hangs on fail or redirect. Beside these links a page has others at random, of which one in ten
leads to another host, and the more often to a page the nearer that is to its host's `/`: most are known already.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from hashlib import shake_128
from itertools import accumulate

from crawler.lab.web.hosts import DEVIATES, made_sites, require_sound, roots_of
from crawler.lab.web.model import SLOWEST, Page, Site, Web, WebOptions, is_redirect
from crawler.lab.web.pages import least_bytes
from crawler.lab.web.paths import TYPES, Paths

__all__ = ["MadeWeb", "Page", "Site", "Web", "WebOptions", "make_web"]

#: Pages that a page leads to in its host's tree, and hosts that a host leads to.
FAN_OUT = 8

_EMBEDS_OF_TEN = 3  # embeds among ten URLs of a host
_DOORS = 50  # another host is found on one of so many first pages
_FAR_OF_256 = 26  # links that lead to another host
_SHARED = 4  # embeds of a host that any of its pages may show
_LATENCY_SPREAD = 0.4  # sigma of a lognormal distribution around the host's median
_SLOW_OF_65536 = 330  # pages that take `SLOWEST` times as long
#: Median bytes and sigma of their lognormal distribution.
_SIZES = {"text/html": (12_000, 0.9), "image/jpeg": (12_000, 1.1), "image/gif": (3_000, 1.1), "text/css": (5_000, 0.8)}
_FAILURE_SIZE = 400
#: Of 65,536 URLs that may fail, so many answer with a status (of an embed: no redirect). 503 shuts a host for a while, so
#: only a small host has it: else one page would decide what the whole web shows.
_STATUSES = ((500, 404), (600, 500), (620, 503), (1400, 301))
_SMALL_SHARE = 100  # a small host has less than the 100th part of all URLs

_FACTORS = {kind: tuple(math.exp(sigma * z) for z in DEVIATES) for kind, (_, sigma) in _SIZES.items()}
_LATENCY_FACTORS = tuple(min(SLOWEST, math.exp(_LATENCY_SPREAD * z)) for z in DEVIATES)
_HEAD = struct.Struct("<6H")  # size, latency, slowness, status, links, shared embed


class MadeWeb:
    """Implements `Web`. Memory: about 1 KB a host, nothing a page."""

    def __init__(self, options: WebOptions) -> None:
        self.sites: Sequence[Site] = made_sites(options)
        self.urls = options.pages
        roots = roots_of(options)
        self.seeds = tuple(f"http://{site.host}/" for site in self.sites[:roots])
        self._options = options
        self._chance_bytes = _HEAD.size + 8 * options.links
        self._places = {site.host: number for number, site in enumerate(self.sites)}
        self._ends = list(accumulate(site.urls for site in self.sites))
        self._paths = [
            Paths(number, site.urls, site.urls - site.urls * _EMBEDS_OF_TEN // 10)
            for number, site in enumerate(self.sites)
        ]
        self._roots = [f"http://{site.host}" for site in self.sites]
        self._doors = self._made_doors(roots)

    def _made_doors(self, roots: int) -> dict[tuple[int, int], list[int]]:
        """(host, page) -> the hosts that this page leads to, so that each is found. Host t of a root hangs below (t-1)/8."""
        doors: dict[tuple[int, int], list[int]] = {}
        for host in range(roots, len(self.sites)):
            rank, root = divmod(host, roots)
            parent = (rank - 1) // FAN_OUT * roots + root
            page = host * 40_503 % min(self._paths[parent].pages, _DOORS)
            doors.setdefault((parent, page), []).append(host)
        return doors

    def page(self, url: str) -> Page | None:
        """What the URL answers. Cost: some 20 microseconds with 10 links."""
        slash = url.find("/", 7)
        host = self._places.get(url[7:slash]) if slash >= 0 and url.startswith("http://") else None
        if host is None:
            return None
        number = self._paths[host].number(url[slash:])
        return None if number is None else self._page(host, number, url)

    def _page(self, host: int, number: int, url: str) -> Page:
        site, paths = self.sites[host], self._paths[host]
        chance = shake_128(b"%d %d %d" % (self._options.seed, host, number)).digest(self._chance_bytes)
        size_at, latency_at, slow_at, status_at, links_at, shared_at = _HEAD.unpack_from(chance)
        latency_s = site.latency_s * (SLOWEST if slow_at < _SLOW_OF_65536 else _LATENCY_FACTORS[latency_at >> 4])
        is_page = number < paths.pages
        tree = [*self._tree(host, number)] if is_page else []
        own = self._own_embeds(host, number) if is_page else []
        if not tree and not own and (status := self._failure(site, status_at, is_page=is_page)):
            parent = self._roots[host] + paths.path(max(number - 1, 0) // FAN_OUT)
            target = (parent,) if is_redirect(status) else ()
            return _answer(site, (status, "text/html", _FAILURE_SIZE), latency_s, target)
        media_type = "text/html" if is_page else TYPES[url.rpartition(".")[2]]
        kind = 200, media_type, int(_SIZES[media_type][0] * _FACTORS[media_type][size_at >> 4])
        if not is_page:
            return _answer(site, kind, latency_s)
        chances = struct.unpack_from(f"<{links_at * (2 * self._options.links + 1) >> 16}I", chance, _HEAD.size)
        links = tuple(dict.fromkeys([*tree, *self._random(host, chances)]))
        return _answer(site, kind, latency_s, links, self._embeds(host, own, shared_at))

    def _embeds(self, host: int, own: list[int], shared_at: int) -> tuple[str, ...]:
        """The page's own embeds, and one that many pages of the host show."""
        paths, root = self._paths[host], self._roots[host]
        if shared := min(_SHARED, paths.urls - paths.pages):
            own.append(paths.pages + shared_at % shared)
        return tuple([root + paths.path(embed) for embed in dict.fromkeys(own)])

    def _tree(self, host: int, number: int) -> Iterator[str]:
        """The links that make others reachable."""
        paths = self._paths[host]
        root = self._roots[host]
        for child in range(FAN_OUT * number + 1, min(FAN_OUT * number + FAN_OUT + 1, paths.pages)):
            yield root + paths.path(child)
        for other in self._doors.get((host, number), ()):
            yield f"{self._roots[other]}/"

    def _own_embeds(self, host: int, number: int) -> list[int]:
        """The embeds that only this page surely has: eight pages share a run of embeds, each of which falls to one of them."""
        paths = self._paths[host]
        pages, embeds = paths.pages, paths.urls - paths.pages
        group, groups = number // FAN_OUT, -(-pages // FAN_OUT)
        size, place = min(FAN_OUT, pages - group * FAN_OUT), number % FAN_OUT
        run = range(embeds * group // groups, embeds * (group + 1) // groups)
        return [pages + embed for embed in run if ((embed * 2_654_435_761 + host) >> 9) % size == place]

    def _random(self, host: int, chances: Sequence[int]) -> Iterator[str]:
        """A link for each chance of 32 bits."""
        paths, root, total = self._paths[host], self._roots[host], self.urls
        pages = paths.pages
        for chance in chances:
            high = chance >> 8
            if chance & 255 < _FAR_OF_256:
                other = bisect_right(self._ends, high * total >> 24)
                place = high * 40_503 & 0xFFFFFF
                yield self._roots[other] + self._paths[other].path(place * place * self._paths[other].pages >> 48)
            else:
                yield root + paths.path(high * high * pages >> 48)

    def _failure(self, site: Site, chance: int, *, is_page: bool) -> int | None:
        """The status if it is none of 200."""
        status = next((status for below, status in _STATUSES if chance < below), None)
        if (status == 301 and not is_page) or (status == 503 and site.urls * _SMALL_SHARE >= self.urls):
            return None
        return status


def _answer(
    site: Site, kind: tuple[int, str, int], latency_s: float, links: tuple[str, ...] = (), embeds: tuple[str, ...] = ()
) -> Page:
    """The page of this status, media type and size; larger if its links take more."""
    status, media_type, size = kind
    if links or embeds:
        size = max(size, least_bytes(links, embeds))
    return Page(status, media_type, size, latency_s, size / site.bandwidth, links, embeds)


def make_web(options: WebOptions) -> MadeWeb:
    """The web of these options; the same options make the same web. Raises: UsageError if there is no such web."""
    require_sound(options)
    return MadeWeb(options)
