"""The paths of a made web, as portals have them: `/2012/05-14/0918234.html`, lists, directories, pictures, style sheets.

A path and the number of its URL say each other, so nothing is kept. The number is scrambled by a multiplication modulo a
prime; the digits of a path are the scrambled number, and the rest of the path follows from it.
"""

from __future__ import annotations

import re

#: The largest primes of 7 and of 10 digits: how many URLs a host may have.
_PRIMES = (9_999_991, 9_999_999_967)
_FACTOR = 6_180_339
_INVERSES = {prime: pow(_FACTOR, -1, prime) for prime in _PRIMES}
_STRIDE = 2_718_281  # between the scrambled numbers of two hosts' first pages

_SECTIONS = ["news", "tech", "sports", "ent", "finance", "auto", "house", "world", "video", "photo", "c", "w"]
_DAYS = [(2012 - back // 12, 12 - back % 12, day) for back in range(24) for day in range(1, 29)]

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
_DIGITS = re.compile(r"/[^?#]*?(\d{7,10})(?:\.[a-z]{3,5}|/)\Z")


class Paths:
    """The paths of one host: number 0 is `/`, numbers below `pages` are pages, those from there on are embeds."""

    __slots__ = ("_first", "_prime", "pages", "urls")

    def __init__(self, host: int, urls: int, pages: int) -> None:
        self.urls, self.pages = urls, pages
        self._prime = _PRIMES[urls >= _PRIMES[0]]
        self._first = host * _STRIDE % self._prime

    def path(self, number: int) -> str:
        """The path of a URL. Cost: less than a microsecond."""
        if not number:
            return "/"
        digits = (number * _FACTOR + self._first) % self._prime
        forms = PAGES if number < self.pages else EMBEDS
        before, after = forms[digits % len(forms)]
        return f"{before}{digits:07}{after}"

    def number(self, path: str) -> int | None:
        """The number of the URL with this path, None if there is none."""
        if path == "/":
            return 0
        found = _DIGITS.match(path)
        if found is None:
            return None
        number = (int(found[1]) - self._first) * _INVERSES[self._prime] % self._prime
        return number if number < self.urls and self.path(number) == path else None
