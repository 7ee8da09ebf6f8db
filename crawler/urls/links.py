"""Links of pages, resolved: most links of a page stood on the page before it, too, so the answers are remembered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from sys import getsizeof

from crawler.urls.parsing import C0_AND_SPACE, NO_BREAKS, WEB, canonical

_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)
#: Links that mean the same on all pages of an origin.
_OF_ORIGIN = ("/", *WEB)
#: What an entry takes in a table, beside its key and its value.
_SLOT_BYTES = 100


class LinkResolver:
    """Resolves links, and remembers the answers.

    Answers are kept per origin for links that start with `/`, `http://` or `https://`, else per directory of the base; a link
    that depends on the whole base (`?page=2`) is not kept. Bounded by number and by bytes, for sites decide how long links and
    directories are: when there are `max_entries` or `max_bytes`, all are dropped before the next page, since a rare cold start
    is cheaper than book-keeping at each hit. The caller owns it, for one thread. Cost of a known link: 0.15 µs.
    """

    #: Longer links (data: URLs above all) and longer answers are not remembered, nor is anything of longer directories.
    MAX_KEPT_CHARS = 512

    def __init__(self, max_entries: int = 50_000, max_bytes: int = 16 << 20) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._kept = 0
        self._kept_bytes = 0
        self._answers: dict[str, dict[str, str | None]] = {}
        self._nothing: dict[str, str | None] = {}  # stays empty

    def __len__(self) -> int:
        """What is held: answers, and the origins and directories they belong to."""
        return self._kept

    @property
    def held_bytes(self) -> int:
        """How much memory that takes, about."""
        return self._kept_bytes

    def resolve(self, base: str, links: Iterable[str]) -> list[str | None]:
        """The canonical form of each link, in order; None for those that have none.

        `base` is a canonical URL, with no slash missing: its text up to the last slash is the key of what is remembered.
        """
        if not self._has_room:
            self._answers.clear()
            self._kept = self._kept_bytes = 0
        path = base.partition("?")[0]
        of_directory = self._of(path[: path.rindex("/") + 1])
        of_origin = self._of(base[: base.index("/", len("https://"))])
        answers = []
        for link in links:
            known = of_origin if link.startswith(_OF_ORIGIN) else of_directory
            try:
                answers.append(known[link])
            except KeyError:
                answers.append(self._learn(base, link, known))
        return answers

    @property
    def _has_room(self) -> bool:
        return self._kept < self._max_entries and self._kept_bytes < self._max_bytes

    def _of(self, place: str) -> dict[str, str | None]:
        """What is remembered of an origin or a directory: of a long one, nothing."""
        if len(place) > self.MAX_KEPT_CHARS:
            return self._nothing
        known = self._answers.get(place)
        if known is None:
            known = self._answers[place] = {}
            self._count(place, known)
        return known

    def _learn(self, base: str, link: str, known: dict[str, str | None]) -> str | None:
        url = canonical(link, base)
        if self._has_room and known is not self._nothing and self._is_worth_keeping(link, url):
            known[link] = url
            self._count(link, url)
        return url

    def _is_worth_keeping(self, link: str, url: str | None) -> bool:
        longest = max(len(link), len(url or ""))
        return longest <= self.MAX_KEPT_CHARS and not _needs_whole_base(link)

    def _count(self, key: str, value: object) -> None:
        self._kept += 1
        self._kept_bytes += getsizeof(key) + getsizeof(value) + _SLOT_BYTES


def _needs_whole_base(link: str) -> bool:
    """The link says so little that the file name or the query of its base shows in the answer: ``, `?q`, `#f`, `http:?q`."""
    return _WHOLE_BASE.match(link.translate(NO_BREAKS).strip(C0_AND_SPACE)) is not None
