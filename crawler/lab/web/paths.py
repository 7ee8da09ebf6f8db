"""The URLs of a made web, as portals have them: `/2012/05-14/0918234.html`, lists, directories, pictures, style sheets.

A URL and its number say each other, so nothing is kept. The number is scrambled by a multiplication modulo a
prime; the digits of a path are the scrambled number, and the rest of the path follows from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The largest primes of 7 and of 10 digits: how many URLs a host may have.
_PRIMES = (9_999_991, 9_999_999_967)
_FACTOR = 6_180_339
_INVERSES = {prime: pow(_FACTOR, -1, prime) for prime in _PRIMES}
_STRIDE = 2_718_281  # between the scrambled numbers of two hosts' first pages

_SECTIONS = ["news", "tech", "sports", "ent", "finance", "auto", "house", "world", "video", "photo", "c", "w"]
#: Few enough for the processor's cache: what stands around the digits of a path is looked up for each link.
_DAYS = [(2012 - back // 12, 12 - back % 12, day) for back in range(24) for day in (7, 21)]

#: What stands before the digits, and after: mostly dated articles, some lists, some directories.
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
#: The last digits of a path, and what stands behind them.
_DIGITS = re.compile(r"(\d{7,10})(?:\.[a-z]{3,5}|/)\Z")


class Paths:
    """The URLs of one host: number 0 is `/`, numbers below `pages` are pages, those from there on are embeds."""

    __slots__ = ("_first", "_host", "_prime", "_root", "pages", "urls")

    def __init__(self, host: int, urls: int, pages: int, root: str = "") -> None:
        """`root` is what stands before the paths: scheme and host."""
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
        """The embeds that only this page surely has: eight pages share a run of embeds, each of which falls to one of them."""
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
        """The number of this URL, None if it is none of the host's. Cost: about a microsecond."""
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
