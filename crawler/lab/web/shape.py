"""A made web: every page is computed from its URL and the seed, so nothing is kept for each page.

Its chances are XXH3's, which is defined for ever and costs a tenth of what a cryptographic hash does.

Reachable from the seeds is every URL, whatever fails: the pages of a host form a tree below its `/`, each linking to
`FAN_OUT` more; the hosts form trees below the seeds, each with links to the first pages of some more; every embed belongs to
a page. Only URLs that nothing hangs on fail or redirect. Beside these links a page has others at random, of which one in ten
leads to another host, and the more often to a page the nearer that is to its host's `/`: most are known already.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from anabranch.crawler.lab.web.hosts import DEVIATES, made_sites, require_sound, roots_of
from anabranch.crawler.lab.web.model import SLOWEST, Page, Site, Web, WebOptions, is_redirect
from anabranch.crawler.lab.web.pages import least_bytes
from anabranch.crawler.lab.web.paths import FAN_OUT, TYPES, Paths

__all__ = ["MadeWeb", "Page", "Site", "Web", "WebOptions", "make_web"]

_new: Final = tuple.__new__
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
_HTML_BYTES, _HTML_FACTORS = _SIZES["text/html"][0], _FACTORS["text/html"]
_SOME_STATUS = _STATUSES[-1][0]
#: A page of so many bytes, and so many more for each link, has room for its links: no URL of a made web is that long.
_AMPLE_BYTES, _AMPLE_PER_LINK = 500, 200
_HEAD = struct.Struct("<8H")  # size, latency, slowness, status, links, shared embed; two are spare
_CHANCES_AT_ONCE = 4


class MadeWeb:
    """Implements `Web`. Memory: about 1 KB a host, nothing a page."""

    def __init__(self, options: WebOptions) -> None:
        self.sites: Sequence[Site] = made_sites(options)
        self.urls = options.pages
        roots = roots_of(options)
        self.seeds = tuple(f"http://{site.host}/" for site in self.sites[:roots])
        self._options = options
        self._places = {site.host: number for number, site in enumerate(self.sites)}
        self._ends = list(accumulate(site.urls for site in self.sites))
        self._paths = [
            Paths(number, site.urls, site.urls - site.urls * _EMBEDS_OF_TEN // 10, f"http://{site.host}")
            for number, site in enumerate(self.sites)
        ]
        self._salts = [xxh3_64_intdigest(b"%d %d" % (options.seed, number)) for number in range(len(self.sites))]
        self._chances = [struct.Struct(f"<{count}I") for count in range(2 * options.links + 1)]
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
        """What the URL answers. Cost: some 10 microseconds with 10 links."""
        host = self._places.get(url[7 : url.find("/", 7)])
        if host is None:
            return None
        paths = self._paths[host]
        number = paths.number(url)
        if number is None:
            return None
        chance = xxh3_128_digest(number.to_bytes(8, "little"), self._salts[host])
        return self._page(host, number, chance) if number < paths.pages else self._embed(host, url, chance)

    def _page(self, host: int, number: int, chance: bytes) -> Page:
        site, paths = self.sites[host], self._paths[host]
        size_at, latency_at, slow_at, status_at, links_at, shared_at, _, _ = _HEAD.unpack(chance)
        latency_s = _latency_s(site, latency_at, slow_at)
        links = self._tree(host, number)
        own = paths.embeds_of(number)
        if status_at < _SOME_STATUS and not (links or own) and (status := self._failure(site, status_at)):
            target = (paths.url(max(number - 1, 0) // FAN_OUT),) if is_redirect(status) else ()
            return _failed(site, status, latency_s, target)
        size = int(_HTML_BYTES * _HTML_FACTORS[size_at >> 4])
        count = links_at * (2 * self._options.links + 1) >> 16
        if count:
            links += self._random(host, self._chances[count].unpack_from(_more(chance, count)))
        # Eight links of the tree are distinct, and so is one.
        targets = tuple(dict.fromkeys(links)) if count else tuple(links)
        embeds = self._embeds(paths, own, shared_at)
        if size < _AMPLE_BYTES + _AMPLE_PER_LINK * (len(targets) + len(embeds)):
            size = max(size, least_bytes(targets, embeds))
        return _new(Page, (200, "text/html", size, latency_s, size / site.bandwidth, targets, embeds))

    def _embed(self, host: int, url: str, chance: bytes) -> Page:
        """What nothing hangs on but its page."""
        site = self.sites[host]
        size_at, latency_at, slow_at, status_at, _, _, _, _ = _HEAD.unpack(chance)
        latency_s = _latency_s(site, latency_at, slow_at)
        if status_at < _SOME_STATUS and (status := self._failure(site, status_at)) and not is_redirect(status):
            return _failed(site, status, latency_s, ())
        media_type = TYPES[url.rpartition(".")[2]]
        size = int(_SIZES[media_type][0] * _FACTORS[media_type][size_at >> 4])
        return _new(Page, (200, media_type, size, latency_s, size / site.bandwidth, (), ()))

    def _embeds(self, paths: Paths, own: list[int], shared_at: int) -> tuple[str, ...]:
        """The page's own embeds, and one that many pages of the host show."""
        if shared := min(_SHARED, paths.urls - paths.pages):
            other = paths.pages + shared_at % shared
            if other not in own:
                own.append(other)
        return tuple(paths.urls_of(own))

    def _tree(self, host: int, number: int) -> list[str]:
        """The links that make others reachable."""
        paths = self._paths[host]
        child = FAN_OUT * number + 1
        links = paths.urls_of(range(child, min(child + FAN_OUT, paths.pages)))
        if number < _DOORS and (others := self._doors.get((host, number))):
            links += [self._paths[other].url(0) for other in others]
        return links

    def _random(self, host: int, chances: Sequence[int]) -> list[str]:
        """A link for each chance of 32 bits."""
        own = self._paths[host]
        links = []
        for chance in chances:
            place = high = chance >> 8
            paths = own
            if chance & 255 < _FAR_OF_256:
                paths = self._paths[bisect_right(self._ends, high * self.urls >> 24)]
                place = high * 40_503 & 0xFFFFFF
            links.append(paths.url(place * place * paths.pages >> 48))
        return links

    def _failure(self, site: Site, chance: int) -> int | None:
        """The status if it is none of 200."""
        status = next((status for below, status in _STATUSES if chance < below), None)
        return None if status == 503 and site.urls * _SMALL_SHARE >= self.urls else status


def _more(chance: bytes, count: int) -> bytes:
    """Bytes for so many chances of 32 bits."""
    if count <= _CHANCES_AT_ONCE:
        return xxh3_128_digest(chance)
    return b"".join([xxh3_128_digest(chance, block) for block in range(-(-count // _CHANCES_AT_ONCE))])


def _latency_s(site: Site, chance: int, slow_chance: int) -> float:
    return site.latency_s * (SLOWEST if slow_chance < _SLOW_OF_65536 else _LATENCY_FACTORS[chance >> 4])


def _failed(site: Site, status: int, latency_s: float, target: tuple[str, ...]) -> Page:
    """What has nothing below it but, of a redirect, its target."""
    size = max(_FAILURE_SIZE, least_bytes(target, ())) if target else _FAILURE_SIZE
    return Page(status, "text/html", size, latency_s, size / site.bandwidth, target, ())


def make_web(options: WebOptions) -> MadeWeb:
    """The web of these options; the same options make the same web. Raises: UsageError if there is no such web."""
    require_sound(options)
    return MadeWeb(options)
