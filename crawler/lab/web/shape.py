"""A generated web: every page is computed from its URL and the seed, so nothing is stored per page.

Random choices come from XXH3, which is stable and costs a tenth of a cryptographic hash.

Every URL is reachable from the seeds, whatever fails: the pages of a host form a tree below its `/`, each linking to
`FAN_OUT` more; the hosts form trees below the seeds, each linking to the first pages of some more; every embed belongs to
a page. Only URLs without children fail or redirect. A page has further random links, of which one in ten leads to another
host; pages near their host's `/` are linked more often, so most of these links are known already.

A URL (`/2012/05-14/0918234.html`, lists, directories, images, style sheets) and its number determine each other. The number
is scrambled by a multiplication modulo a prime; the result is the digits of the path and determines the rest of the path.
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from statistics import NormalDist

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from anabranch.crawler.lab.web.model import SLOWEST, WebHost, WebOptions, WebPage, is_redirect, least_bytes
from anabranch.crawler.outcomes.errors import UsageError

# Hosts

#: The seeds of the published experiment, with their shares of all URLs.
PORTALS = {"sina.com.cn": 26, "sohu.com": 18, "163.com": 20, "qq.com": 26, "xinhuanet.com": 10}
KINDS = ("portals", "subdomains", "hosts")

_CHANNELS = (  # noqa: SIM905 - a list would take a line per name
    "news tech sports ent finance auto house edu games mil lady astro baby book comic digi eladies fashion fund "
    "gongyi health history kid law luxury money music photo stock style tour travel video weather blog bbs book2 "
    "club data img"
).split()
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstwxyz" for vowel in "aeiou"]
_ENDINGS = (".com", ".cn", ".com.cn", ".net")
_MOST_HOSTS = 10**6  # names of three syllables
_DELAYED_RANK = 39  # this host, or else the last one, has a Crawl-delay: neither the largest nor one with a page or two
_DELAY_LATENCIES = 5.0  # a Crawl-delay in median latencies: Heritrix's delay factor
_LEAST_DELAY_S = 0.1
_HOST_LATENCY_SPREAD = 0.5  # sigma of a lognormal distribution over the hosts
_BANDWIDTH_SPREAD = 0.8

#: Standard normal deviates of equal probability, lowest first: bounded (3.7), so the results are heavy-tailed but finite.
DEVIATES = tuple(NormalDist().inv_cdf((number + 0.5) / 4096) for number in range(4096))


def require_sound(options: WebOptions) -> None:
    """Raises: UsageError if the options are invalid."""
    if options.kind not in KINDS:
        raise UsageError(f"kind {options.kind!r}: choose one of {', '.join(KINDS)}")
    if not 1 <= options.hosts <= _MOST_HOSTS:
        raise UsageError(f"hosts {options.hosts}: give from 1 to {_MOST_HOSTS:,}")
    if not options.hosts <= options.pages <= 10**9:
        raise UsageError(
            f"pages {options.pages}: give at least one for each of the {options.hosts} hosts, at most 10^9"
        )
    if not 0 <= options.links <= 1000:
        raise UsageError(f"links {options.links}: give from 0 to 1000")
    if not (math.isfinite(options.latency_s) and options.latency_s >= 0):
        raise UsageError(f"latency {options.latency_s}: give seconds, 0 or more")
    if not (math.isfinite(options.bandwidth) and options.bandwidth >= 1):
        raise UsageError(f"bandwidth {options.bandwidth}: give bytes per second, 1 or more")


def roots_of(options: WebOptions) -> int:
    """The number of seeds, which are the first hosts. The others are below them, `roots` apart."""
    return 1 if options.kind == "subdomains" else min(len(PORTALS), options.hosts)


def made_sites(options: WebOptions) -> list[WebHost]:
    """All hosts, the seeds first. The r-th of a portal (of all hosts, in a web of hosts) has a share proportional to 1/r.

    Each has one URL at least; together they have `pages`. Cost: some microseconds and some 250 bytes a host.
    """
    names, weights = zip(*(_named(options, number) for number in range(options.hosts)), strict=True)
    total, spare = sum(weights), options.pages - options.hosts
    ends = accumulate(weights, initial=0)
    counts = [1 + spare * end // total - spare * start // total for start, end in pairwise(ends)]
    delayed = min(_DELAYED_RANK, options.hosts - 1)
    return [
        _site(options, number, name, count, is_delayed=number == delayed)
        for number, (name, count) in enumerate(zip(names, counts, strict=True))
    ]


def _named(options: WebOptions, number: int) -> tuple[str, int]:
    """The host's name, and its weight among all."""
    if options.kind == "hosts":
        return _far_host(number), 10**12 // (number + 1)
    portals = list(PORTALS)[: roots_of(options)]
    rank, portal = divmod(number, len(portals))
    return f"{_channel(rank)}.{portals[portal]}", PORTALS[portals[portal]] * 10**12 // (rank + 1)


def _channel(rank: int) -> str:
    if rank == 0:
        return "www"
    turn, place = divmod(rank - 1, len(_CHANNELS))
    return f"{_CHANNELS[place]}-{turn + 1}" if turn else _CHANNELS[place]


def _far_host(rank: int) -> str:
    """Three syllables; no two ranks share them."""
    number, ending = rank * 7919 % _MOST_HOSTS, _ENDINGS[rank % len(_ENDINGS)]
    return f"www.{''.join(_SYLLABLES[number // place % 100] for place in (10**4, 10**2, 1))}{ending}"


def _site(options: WebOptions, number: int, name: str, count: int, *, is_delayed: bool) -> WebHost:
    digest = blake2b(b"site %d %d" % (options.seed, number), digest_size=4).digest()
    slower, wider = (DEVIATES[int.from_bytes(digest[start : start + 2]) >> 4] for start in (0, 2))
    delay_s = max(_DELAY_LATENCIES * options.latency_s, _LEAST_DELAY_S)
    return WebHost(
        host=name,
        urls=count,
        latency_s=options.latency_s * math.exp(_HOST_LATENCY_SPREAD * slower),
        bandwidth=options.bandwidth * math.exp(_BANDWIDTH_SPREAD * wider),
        crawl_delay_s=round(delay_s, 3) if is_delayed else None,
    )


# URLs of a host

#: The largest primes of 7 and of 10 digits: how many URLs a host may have.
_PRIMES = (9_999_991, 9_999_999_967)
_FACTOR = 6_180_339
_INVERSES = {prime: pow(_FACTOR, -1, prime) for prime in _PRIMES}
_STRIDE = 2_718_281  # between the scrambled numbers of two hosts' first pages

_SECTIONS = ["news", "tech", "sports", "ent", "finance", "auto", "house", "world", "video", "photo", "c", "w"]
#: Few enough for the processor's cache, because the text around the digits of a path is looked up for each link.
_DAYS = [(2012 - back // 12, 12 - back % 12, day) for back in range(24) for day in (7, 21)]

#: The text before and after the digits: mostly dated articles, some lists, some directories.
PAGES = tuple(
    form
    for place, (year, month, day) in enumerate(_DAYS)
    for section in (_SECTIONS[place % len(_SECTIONS)],)
    for form in (
        (f"/{year}/{month:02}-{day:02}/", ".html"),
        (f"/{section}/{year}-{month:02}-{day:02}/", ".shtml"),
        (f"/a/{year}{month:02}{day:02}/", ".htm"),
        (f"/{year}/{month:02}-{day:02}/", ".html"),
        (f"/{section}/list_", ".html"),
        (f"/{section}/", "/"),
    )
)
EMBEDS = tuple(
    form
    for year, month, day in _DAYS
    for form in (
        (f"/images/{year}/{month:02}{day:02}/U", ".jpg"),
        (f"/pic/{year}{month:02}{day:02}/", ".jpg"),
        (f"/images/{year}/{month:02}{day:02}/", ".gif"),
        ("/css/", ".css"),
    )
)
TYPES = {"html": "text/html", "jpg": "image/jpeg", "gif": "image/gif", "css": "text/css"}
#: Pages that a page leads to in its host's tree, and hosts that a host leads to.
FAN_OUT = 8
#: The last digits of a path, and the text after them.
_DIGITS = re.compile(r"(\d{7,10})(?:\.[a-z]{3,5}|/)\Z")


class Paths:
    """The URLs of one host: number 0 is `/`, numbers below `pages` are pages, those from there on are embeds."""

    __slots__ = ("_first", "_host", "_prime", "_root", "pages", "urls")

    def __init__(self, host: int, urls: int, pages: int, root: str = "") -> None:
        """`root` is the text before the paths: scheme and host."""
        self.urls, self.pages = urls, pages
        self._host, self._root = host, root
        self._prime = _PRIMES[urls >= _PRIMES[0]]
        self._first = host * _STRIDE % self._prime

    def url(self, number: int) -> str:
        """The URL of this number. Cost: less than a microsecond."""
        return self.urls_of((number,))[0] if number else self._root + "/"

    def urls_of(self, numbers: Iterable[int]) -> list[str]:
        """The URLs of these numbers, none of which is 0; two thirds of the price of one by one."""
        root, prime, first, pages = self._root, self._prime, self._first, self.pages
        urls = []
        for number in numbers:
            digits = (number * _FACTOR + first) % prime
            forms = PAGES if number < pages else EMBEDS
            before, after = forms[digits % len(forms)]
            urls.append(f"{root}{before}{digits:07}{after}")
        return urls

    def embeds_of(self, page: int) -> list[int]:
        """The embeds that belong to this page: eight pages share a run of embeds, and each embed belongs to one of them."""
        pages = self.pages
        embeds = self.urls - pages
        group, place = divmod(page, FAN_OUT)
        groups = (pages + FAN_OUT - 1) // FAN_OUT
        first, end = embeds * group // groups, embeds * (group + 1) // groups
        if first == end:
            return []
        size = min(FAN_OUT, pages - group * FAN_OUT)
        return [
            pages + embed for embed in range(first, end) if (embed * 2_654_435_761 + self._host >> 9) % size == place
        ]

    def number(self, url: str) -> int | None:
        """The number of this URL, None if the host does not have it. Cost: about a microsecond."""
        end = -1 if url.endswith("/") else url.rfind(".")
        digits = url[end - 7 : end]
        if self._prime != _PRIMES[0]:
            found = _DIGITS.search(url)
            digits = found[1] if found else ""
        if digits.isdecimal():
            number = (int(digits) - self._first) * _INVERSES[self._prime] % self._prime
            if number < self.urls and self.url(number) == url:
                return number
        return 0 if url == self.url(0) else None


# The web

_EMBEDS_OF_TEN = 3  # embeds among ten URLs of a host
_DOORS = 50  # another host is found on one of so many first pages
_FAR_OF_256 = 26  # links that lead to another host
_SHARED = 4  # embeds of a host that any of its pages may show
_PAGE_LATENCY_SPREAD = 0.4  # sigma of a lognormal distribution around the host's median
_SLOW_OF_65536 = 330  # pages that take `SLOWEST` times as long
#: Median bytes and sigma of their lognormal distribution.
_SIZES = {"text/html": (12_000, 0.9), "image/jpeg": (12_000, 1.1), "image/gif": (3_000, 1.1), "text/css": (5_000, 0.8)}
_FAILURE_SIZE = 400
#: Of 65,536 URLs that may fail, so many answer with a status (of an embed: no redirect). 503 shuts a host for a while, so
#: only a small host has it: else one page would decide what the whole web shows.
_STATUSES = ((500, 404), (600, 500), (620, 503), (1400, 301))
_SMALL_SHARE = 100  # a small host has less than the 100th part of all URLs

_FACTORS = {kind: tuple(math.exp(sigma * z) for z in DEVIATES) for kind, (_, sigma) in _SIZES.items()}
_LATENCY_FACTORS = tuple(min(SLOWEST, math.exp(_PAGE_LATENCY_SPREAD * z)) for z in DEVIATES)
_HTML_BYTES, _HTML_FACTORS = _SIZES["text/html"][0], _FACTORS["text/html"]
_SOME_STATUS = _STATUSES[-1][0]
#: A page of so many bytes, and so many more for each link, has room for its links: no URL of a generated web is that long.
_AMPLE_BYTES, _AMPLE_PER_LINK = 500, 200
_HEAD = struct.Struct("<8H")  # size, latency, slowness, status, links, shared embed; two are spare
_CHANCES_AT_ONCE = 4


class MadeWeb:
    """Implements `Web`. Memory: about 1 KB a host, nothing a page."""

    def __init__(self, options: WebOptions) -> None:
        self.sites: Sequence[WebHost] = made_sites(options)
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

    def page(self, url: str) -> WebPage | None:
        """Return the page of the URL; None if there is no such page. Cost: some 10 microseconds with 10 links."""
        host = self._places.get(url[7 : url.find("/", 7)])
        if host is None:
            return None
        paths = self._paths[host]
        number = paths.number(url)
        if number is None:
            return None
        chance = xxh3_128_digest(number.to_bytes(8, "little"), self._salts[host])
        return self._page(host, number, chance) if number < paths.pages else self._embed(host, url, chance)

    def _page(self, host: int, number: int, chance: bytes) -> WebPage:
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
        return WebPage(200, "text/html", size, latency_s, size / site.bandwidth, targets, embeds)

    def _embed(self, host: int, url: str, chance: bytes) -> WebPage:
        """An embed, which leads to nothing."""
        site = self.sites[host]
        size_at, latency_at, slow_at, status_at, _, _, _, _ = _HEAD.unpack(chance)
        latency_s = _latency_s(site, latency_at, slow_at)
        if status_at < _SOME_STATUS and (status := self._failure(site, status_at)) and not is_redirect(status):
            return _failed(site, status, latency_s, ())
        media_type = TYPES[url.rpartition(".")[2]]
        size = int(_SIZES[media_type][0] * _FACTORS[media_type][size_at >> 4])
        return WebPage(200, media_type, size, latency_s, size / site.bandwidth, (), ())

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

    def _failure(self, site: WebHost, chance: int) -> int | None:
        """The status if it is not 200."""
        status = next((status for below, status in _STATUSES if chance < below), None)
        return None if status == 503 and site.urls * _SMALL_SHARE >= self.urls else status


def _more(chance: bytes, count: int) -> bytes:
    """Bytes for so many chances of 32 bits."""
    if count <= _CHANCES_AT_ONCE:
        return xxh3_128_digest(chance)
    return b"".join([xxh3_128_digest(chance, block) for block in range(-(-count // _CHANCES_AT_ONCE))])


def _latency_s(site: WebHost, chance: int, slow_chance: int) -> float:
    return site.latency_s * (SLOWEST if slow_chance < _SLOW_OF_65536 else _LATENCY_FACTORS[chance >> 4])


def _failed(site: WebHost, status: int, latency_s: float, target: tuple[str, ...]) -> WebPage:
    """A page without links, except the target of a redirect."""
    size = max(_FAILURE_SIZE, least_bytes(target, ())) if target else _FAILURE_SIZE
    return WebPage(status, "text/html", size, latency_s, size / site.bandwidth, target, ())


def make_web(options: WebOptions) -> MadeWeb:
    """The web of these options, always the same. Raises: UsageError if the options are invalid."""
    require_sound(options)
    return MadeWeb(options)
