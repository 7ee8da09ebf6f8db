"""Links of pages, resolved: most links of a page stood on the page before it, too, so the answers are remembered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from sys import getsizeof

from crawler.urls.parsing import C0_AND_SPACE, NO_BREAKS, WEB, canonical

#: Where the host of a web URL may begin.
_AUTHORITY = len("https://")
_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)
#: A URL that is its own canonical form if its origin is: nothing in it can be written in two ways, and no segment begins with
#: a dot.
_PLAIN_URL = re.compile(
    r"(https?://[a-z0-9.:\[\]-]++)(?:/(?!\.)[A-Za-z0-9_~!$&'()*+,;=:@.-]*+)++(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?-]++)?"
)
#: What an entry takes in a table, beside its key and its value.
_SLOT_BYTES = 100
#: The answer that is remembered of a link that has none.
_NONE = ""


class LinkResolver:
    """Resolves links, and remembers the answers.

    Links that start with `http://` or `https://` mean the same everywhere, those that start with `/` on all pages of an origin,
    others on all pages of a directory; a link that depends on the whole base (`?page=2`) is not kept. Bounded by number and by
    bytes, for sites decide how long links and directories are: when there are `max_entries` or `max_bytes`, all are dropped
    before the next page, since a rare cold start is cheaper than book-keeping at each hit. The caller owns it, for one thread.
    Cost of a known link: 0.05 µs if it is absolute, else 0.2 µs; of a new one 2 µs, or 0.7 µs if nothing in it can be written
    in two ways and its origin is known.
    """

    #: Longer links (data: URLs above all) and longer answers are not remembered, nor is anything of longer directories.
    MAX_KEPT_CHARS = 512

    def __init__(self, max_entries: int = 50_000, max_bytes: int = 16 << 20) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._kept = 0
        self._kept_bytes = 0
        self._absolute: dict[str, str] = {}
        self._answers: dict[str, dict[str, str]] = {}  # by origin, or by directory
        self._origins: set[str] = set()  # that are canonical as they stand
        self._nothing: dict[str, str] = {}  # stays empty

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
            self._absolute.clear()
            self._answers.clear()
            self._origins.clear()
            self._kept = self._kept_bytes = 0
        links = list(links)
        answers: list[str | None] = list(map(self._absolute.get, links))
        if None in answers:
            self._resolve_rest(base, links, answers)
        return [answer or None for answer in answers] if _NONE in answers else answers

    def _resolve_rest(self, base: str, links: list[str], answers: list[str | None]) -> None:
        """Fill the gaps of the answers."""
        path = base.partition("?")[0]
        of_directory = self._of(path[: path.rindex("/") + 1])
        of_origin = self._of(base[: base.index("/", _AUTHORITY)])
        for number, link in enumerate(links):
            if answers[number] is None:
                of_place = of_origin if link.startswith("/") else of_directory
                known = self._absolute if link.startswith(WEB) else of_place
                answer = known.get(link)
                answers[number] = self._learn(base, link, known) if answer is None else answer

    @property
    def _has_room(self) -> bool:
        return self._kept < self._max_entries and self._kept_bytes < self._max_bytes

    def _of(self, place: str) -> dict[str, str]:
        """What is remembered of an origin or a directory: of a long one, nothing."""
        if len(place) > self.MAX_KEPT_CHARS:
            return self._nothing
        known = self._answers.get(place)
        if known is None:
            known = self._answers[place] = {}
            self._count(place, known)
        return known

    def _learn(self, base: str, link: str, known: dict[str, str]) -> str:
        url = self._parsed(base, link)
        of_all = known is self._absolute
        if self._has_room and known is not self._nothing and self._is_worth_keeping(link, url, of_all=of_all):
            if url == link:
                url = link  # one text instead of two
            known[link] = url
            self._count(link, url)
        return url

    def _parsed(self, base: str, link: str) -> str:
        plain = _PLAIN_URL.fullmatch(link) if len(link) <= self.MAX_KEPT_CHARS else None
        if plain is not None and plain[1] in self._origins:
            return link
        url = canonical(link, base) or _NONE
        if plain is not None and url == link and self._has_room:
            self._origins.add(plain[1])
            self._count(plain[1], None)
        return url

    def _is_worth_keeping(self, link: str, url: str, *, of_all: bool) -> bool:
        return max(len(link), len(url)) <= self.MAX_KEPT_CHARS and (of_all or not _needs_whole_base(link))

    def _count(self, key: str, value: object) -> None:
        self._kept += 1
        self._kept_bytes += getsizeof(key) + getsizeof(value) + _SLOT_BYTES


def _needs_whole_base(link: str) -> bool:
    """The link says so little that the file name or the query of its base shows in the answer: ``, `?q`, `#f`, `http:?q`."""
    return _WHOLE_BASE.match(link.translate(NO_BREAKS).strip(C0_AND_SPACE)) is not None
