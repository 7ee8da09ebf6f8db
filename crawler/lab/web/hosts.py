"""The hosts of a made web: their names, how many URLs each has, and how fast it answers."""

from __future__ import annotations

import math
from hashlib import blake2b
from itertools import accumulate, pairwise
from statistics import NormalDist

from anabranch.crawler.lab.web.model import Site, WebOptions
from anabranch.crawler.outcomes.errors import UsageError

#: The seeds of the published experiment, with their shares of all URLs.
PORTALS = {"sina.com.cn": 26, "sohu.com": 18, "163.com": 20, "qq.com": 26, "xinhuanet.com": 10}
KINDS = ("portals", "subdomains", "hosts")

_CHANNELS = [
    "news",
    "tech",
    "sports",
    "ent",
    "finance",
    "auto",
    "house",
    "edu",
    "games",
    "mil",
    "lady",
    "astro",
    "baby",
    "book",
    "comic",
    "digi",
    "eladies",
    "fashion",
    "fund",
    "gongyi",
    "health",
    "history",
    "kid",
    "law",
    "luxury",
    "money",
    "music",
    "photo",
    "stock",
    "style",
    "tour",
    "travel",
    "video",
    "weather",
    "blog",
    "bbs",
    "book2",
    "club",
    "data",
    "img",
]
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstwxyz" for vowel in "aeiou"]
_ENDINGS = (".com", ".cn", ".com.cn", ".net")
_MOST_HOSTS = 10**6  # names of three syllables
_DELAYED_RANK = 39  # this host, or else the last one, has a Crawl-delay: neither the largest nor one with a page or two
_DELAY_LATENCIES = 5.0  # a Crawl-delay in median latencies: Heritrix's delay factor
_LEAST_DELAY_S = 0.1
_LATENCY_SPREAD = 0.5  # sigma of a lognormal distribution over the hosts
_BANDWIDTH_SPREAD = 0.8

#: Standard normal deviates of equal chance, lowest first: bounded (3.7), so what is made of them is heavy-tailed but finite.
DEVIATES = tuple(NormalDist().inv_cdf((number + 0.5) / 4096) for number in range(4096))


def require_sound(options: WebOptions) -> None:
    """Raises: UsageError if there is no such web."""
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
    """Hosts that are seeds: the first so many. The others hang below them, `roots` apart."""
    return 1 if options.kind == "subdomains" else min(len(PORTALS), options.hosts)


def made_sites(options: WebOptions) -> list[Site]:
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


def _site(options: WebOptions, number: int, name: str, count: int, *, is_delayed: bool) -> Site:
    digest = blake2b(b"site %d %d" % (options.seed, number), digest_size=4).digest()
    slower, wider = (DEVIATES[int.from_bytes(digest[start : start + 2]) >> 4] for start in (0, 2))
    delay_s = max(_DELAY_LATENCIES * options.latency_s, _LEAST_DELAY_S)
    return Site(
        host=name,
        urls=count,
        latency_s=options.latency_s * math.exp(_LATENCY_SPREAD * slower),
        bandwidth=options.bandwidth * math.exp(_BANDWIDTH_SPREAD * wider),
        crawl_delay_s=round(delay_s, 3) if is_delayed else None,
    )
