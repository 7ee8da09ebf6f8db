"""The URLs of the experiments: read from a file, or generated, the same on every machine.

All random choices are integers from BLAKE2b over (purpose, seed, number), so neither the Python version nor floating point
changes a URL.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from math import isqrt
from pathlib import Path
from typing import TypeAlias

from anabranch.crawler.outcomes.errors import UsageError

#: A file of this name is standard input.
STDIN = Path("-")

#: Four independent numbers of 32 bits.
_Chance: TypeAlias = tuple[int, int, int, int]

_MASK = (1 << 32) - 1
_DAYS = 1600  # articles are dated within so many days, in months of 28
_SECTIONS = b"a news tech sports ent finance auto house world video blog photo".split()

#: The portals with their share of all portal URLs in percent.
_PORTALS = {
    b"qq.com": 30,
    b"sina.com.cn": 22,
    b"163.com": 16,
    b"sohu.com": 14,
    b"xinhuanet.com": 9,
    b"ifeng.com": 4,
    b"people.com.cn": 3,
    b"tom.com": 2,
}
_PORTALS_SHARE = 70  # of all URLs, in percent
_CHANNELS = (
    b"news tech sports ent finance auto house edu games mil lady astro baby book comic digi eladies fashion fund gongyi "
    b"health history kid law luxury money music photo stock style tour travel video weather www blog bbs book2 club data"
).split()
_SMALL_SITES = 10_000
_SYLLABLES = [bytes(pair) for pair in ((c, v) for c in b"bcdfghjklmnpqrstwxyz" for v in b"aeiou")]
_ENDINGS = (b".com", b".cn", b".com.cn", b".net")

#: Hosts of a packet capture, the busiest first, and the types of files.
_CAPTURED = (
    b"www.sina.com.cn www.qq.com img1.gtimg.com www.163.com i1.sinaimg.cn www.baidu.com mat1.gtimg.com www.sohu.com "
    b"img.ifeng.com ip.cnzz.com s.tbcdn.cn pic.xinhuanet.com g.cn ad.doubleclick.net static.youku.com www.tom.com"
).split()
_FILES = (b".htm", b".jpg", b".gif", b".js", b".css", b".png")


def packet_urls(count: int = 75_012, mean_bytes: float = 50.5, seed: int = 1) -> list[bytes]:
    """Distinct URLs as in a packet capture: pages and their embedded files.

    Their lengths add up to `count` x `mean_bytes`, rounded; short ones are frequent, a few are long. Cost: 4 µs each.
    Raises: UsageError if the mean is too small for distinct URLs.
    """
    chance = _chance_of(b"packet", seed)
    hosts = _Wheel([1000 // (rank + 1) for rank in range(len(_CAPTURED))])
    short = [_captured(number, chance(number), hosts) for number in range(count)]
    missing = round(count * mean_bytes) - sum(map(len, short))
    if missing < 0:
        least = sum(map(len, short)) / count
        raise UsageError(f"mean-bytes {mean_bytes}: {count} distinct URLs take {least:.1f} or more on average")
    weights = [_MASK // (chance(number)[3] % 97 + 3) for number in range(count)]
    ends = accumulate(weights, initial=0)
    total = sum(weights)
    return [
        _stretched(url, missing * end // total - missing * start // total)
        for url, (start, end) in zip(short, pairwise(ends), strict=True)
    ]


def portal_urls(count: int, seed: int = 1) -> list[bytes]:
    """Distinct URLs like those of one day of Chinese portals; a longer list of the same seed begins with a shorter one.

    70 % belong to eight portals (30, 22, 16, 14, 9, 4, 3 and 2 % of these), each over 40 hosts, the r-th with a share
    proportional to 1/r; 30 % to 10,000 small sites, the r-th with a share proportional to (r + 100)^-1.5. So of 1.5
    million URLs the largest host has about 74,000, the median small site seven. Each seed has the same hosts and other URLs.
    Cost: 3 µs and 95 bytes each.
    """
    chance = _chance_of(b"portal", seed)
    hosts, weights = zip(*_portal_hosts(), strict=True)
    wheel = _Wheel(weights)
    urls = []
    for number in range(count):
        chosen = chance(number)
        urls.append(_portal_url(hosts[wheel.at(*chosen[:2])], number, chosen))
    return urls


def distinct_urls(path: Path | None, count: int, seed: int) -> list[bytes]:
    """All URLs of the file, each once, in order; without a file `count` generated portal URLs. Raises: UsageError."""
    return list(dict.fromkeys(urls_of_file(path))) if path else portal_urls(count, seed)


def urls_of_file(path: Path) -> list[bytes]:
    """The lines of a file (`-`: standard input) without CR and LF, empty ones skipped. Raises: UsageError without a URL."""
    with _named_errors(path):
        lines = (sys.stdin.buffer.read() if path == STDIN else path.read_bytes()).split(b"\n")
    urls = [url for line in lines if (url := line.rstrip(b"\r"))]
    if not urls:
        raise UsageError(f"--urls: {path} holds no URL; name a file with one URL a line")
    return urls


def require_readable(path: Path) -> None:
    """Raises: UsageError if the file cannot be opened, or standard input is closed."""
    if path == STDIN:
        if sys.stdin is None:
            raise UsageError("--urls: standard input is closed; name a file with one URL a line")
        return
    with _named_errors(path), path.open("rb"):
        pass


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"--urls: {path}: {why}; name a file with one URL a line") from error


def repeated(urls: Sequence[bytes], share: float, seed: int = 1) -> list[bytes]:
    """A stream as long as `urls` in which `share` of the entries repeat an earlier one, evenly spread.

    The others are the first of `urls`, in their order; the very first entry is always new. Raises: UsageError unless
    the share is from 0 to below 1.
    """
    if not 0 <= share < 1:
        raise UsageError(f"share of repeats {share}: it must be from 0 to below 1")
    chance, stream, new = _chance_of(b"repeat", seed), list(urls[:1]), 1
    repeats = min(round(share * len(urls)), max(len(urls) - 1, 0))
    for place in range(1, len(urls)):
        left = repeats - (place - new)  # each of the places left is equally likely to be one of these
        turn, which, _, _ = chance(place)
        if turn * (len(urls) - place) < left << 32:
            stream.append(urls[which * new >> 32])
        else:
            stream.append(urls[new])
            new += 1
    return stream


class _Wheel:
    """Chooses a number with a probability proportional to its weight. Cost: 0.5 µs."""

    def __init__(self, weights: Sequence[int]) -> None:
        self._ends = list(accumulate(weights))

    def at(self, high: int, low: int = 0) -> int:
        """The choice for 64 random bits."""
        return bisect_right(self._ends, (high << 32 | low) * self._ends[-1] >> 64)


def _chance_of(purpose: bytes, seed: int) -> Callable[[int], _Chance]:
    """A function that maps each number to its random values, always the same."""
    root = hashlib.blake2b(b"%s %d " % (purpose, seed), digest_size=16)

    def chance(number: int) -> _Chance:
        digest = root.copy()
        digest.update(b"%d" % number)
        bits = int.from_bytes(digest.digest())
        return bits >> 96, bits >> 64 & _MASK, bits >> 32 & _MASK, bits & _MASK

    return chance


def _captured(number: int, chance: _Chance, hosts: _Wheel) -> bytes:
    """The shortest form of a captured URL; `number` follows its last `_`, so no two are equal."""
    host, section, kind, _ = chance
    place = _CAPTURED[hosts.at(host)]
    return b"http://%s/%s/_%d%s" % (place, _SECTIONS[section % 6], number, _FILES[kind % len(_FILES)])


def _stretched(url: bytes, more: int) -> bytes:
    """The URL with that many bytes more in front of its number."""
    head, _, tail = url.rpartition(b"_")
    name = hashlib.shake_128(url).hexdigest((more + 1) // 2)[:more].encode()
    return b"%s%s_%s" % (head, name, tail)


def _portal_hosts() -> Iterator[tuple[bytes, int]]:
    """Every host with its weight."""
    ranks = [10**9 // rank for rank in range(1, len(_CHANNELS) + 1)]
    small = [10**12 // ((rank + 100) * isqrt((rank + 100) * 10**4)) for rank in range(_SMALL_SITES)]
    for portal, percent in _PORTALS.items():
        for channel, weight in zip(_CHANNELS, ranks, strict=True):
            yield b"%s.%s" % (channel, portal), percent * _PORTALS_SHARE * weight * sum(small)
    for rank, weight in enumerate(small):
        yield _small_host(rank), (100 - _PORTALS_SHARE) * 100 * weight * sum(ranks)


def _small_host(rank: int) -> bytes:
    """Three syllables; no two ranks share them."""
    number, ending = rank * 7919 % 10**6, _ENDINGS[rank % len(_ENDINGS)]
    return b"www.%s%s%s%s" % (*(_SYLLABLES[number // place % 100] for place in (10**4, 10**2, 1)), ending)


def _portal_url(host: bytes, number: int, chance: _Chance) -> bytes:
    """A URL of the host; `number` is its last run of digits, so no two are equal."""
    _, _, kind, day = chance
    section = _SECTIONS[(kind >> 8) % len(_SECTIONS)]
    month, date = divmod(day % _DAYS, 28)
    year, month = 2012 - month // 12, 12 - month % 12
    match kind & 7:
        case 0:
            return b"http://%s/%s/list_%d.shtml" % (host, section, number)
        case 1:
            return b"http://%s/story?channel=%s&id=%d" % (host, section, number)
        case 2 | 3 | 4:
            return b"http://%s/%s/%d-%02d-%02d/%d.shtml" % (host, section, year, month, date + 1, number)
        case _:
            return b"http://%s/a/%d%02d%02d/%06d.htm" % (host, year, month, date + 1, number)
