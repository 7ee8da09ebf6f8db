"""References, resolved to links: most links of a page stood on the page before it, too, so they are remembered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from sys import getsizeof
from typing import Final

from crawler.extracting.links import Link, Reference
from crawler.urls.parsing import C0_AND_SPACE, NO_BREAKS, WEB, canonical

#: Where the host of a web URL may begin.
_AUTHORITY = len("https://")
_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)
#: A URL that is its own canonical form if its origin is: nothing in it can be written in two ways, and no segment begins with
#: a dot.
_PLAIN_URL = re.compile(
    r"(https?://[a-z0-9.:\[\]-]++)(?:/(?!\.)[A-Za-z0-9_~!$&'()*+,;=:@.-]*+)++(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?-]++)?"
)
#: What an entry takes in a table, beside its texts: a reference, a link and a slot.
_SLOT_BYTES = 200
#: What a reference is that leads nowhere.
NO_LINK: Final = Link("", "")

_Answers = dict[Reference, Link]


class LinkResolver:
    """Makes links of references, and remembers them.

    References that start with `http://` or `https://` mean the same everywhere, those that start with `/` on all pages of an
    origin, others on all pages of a directory; one that depends on the whole base (`?page=2`) is not kept. A link that is met
    again is the same object. Bounded by number and by bytes, for sites decide how long links and directories are: when there
    are `max_entries` or `max_bytes`, all are dropped before the next page, since a rare cold start is cheaper than
    book-keeping at each hit. The caller owns it, for one thread. Cost of a known link: 0.1 µs if it is absolute, else 0.2 µs;
    of a new one 2.5 µs, or 1.2 µs if nothing in it can be written in two ways and its origin is known.
    """

    #: Longer links (data: URLs above all), answers and contexts are not remembered, nor is anything of longer directories.
    MAX_KEPT_CHARS = 512

    def __init__(self, max_entries: int = 50_000, max_bytes: int = 24 << 20) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._kept = 0
        self._kept_bytes = 0
        self._absolute: _Answers = {}
        self._answers: dict[str, _Answers] = {}  # by origin, or by directory
        self._origins: set[str] = set()  # that are canonical as they stand
        self._nothing: _Answers = {}  # stays empty

    def __len__(self) -> int:
        """What is held: answers, and the origins and directories they belong to."""
        return self._kept

    @property
    def held_bytes(self) -> int:
        """How much memory that takes, about."""
        return self._kept_bytes

    def resolve(self, base: str, references: Sequence[Reference]) -> list[Link]:
        """The link that each reference is, in order; `NO_LINK` for those that are none.

        `base` is a canonical URL, with no slash missing: its text up to the last slash is the key of what is remembered.
        """
        if not self._has_room:
            self._absolute.clear()
            self._answers.clear()
            self._origins.clear()
            self._kept = self._kept_bytes = 0
        try:
            return list(map(self._absolute.__getitem__, references))
        except KeyError:
            return self._each_resolved(base, references)

    def _each_resolved(self, base: str, references: Sequence[Reference]) -> list[Link]:
        """The same where not all are known and absolute."""
        path = base.partition("?")[0]
        of_directory = self._of(path[: path.rindex("/") + 1])
        of_origin = self._of(base[: base.index("/", _AUTHORITY)])
        links = []
        for reference in references:
            text = reference[0]
            known = of_origin if text.startswith("/") else self._absolute if text.startswith(WEB) else of_directory
            link = known.get(reference)
            links.append(self._learn(base, reference, known) if link is None else link)
        return links

    @property
    def _has_room(self) -> bool:
        return self._kept < self._max_entries and self._kept_bytes < self._max_bytes

    def _of(self, place: str) -> _Answers:
        """What is remembered of an origin or a directory: of a long one, nothing."""
        if len(place) > self.MAX_KEPT_CHARS:
            return self._nothing
        known = self._answers.get(place)
        if known is None:
            known = self._answers[place] = {}
            self._count(place, known)
        return known

    def _learn(self, base: str, reference: Reference, known: _Answers) -> Link:
        text, hop, context = reference
        url = self._parsed(base, text)
        if url == text:
            url = text  # one text instead of two
        link = Link(url, hop, context) if url else NO_LINK
        of_all = known is self._absolute
        if self._has_room and known is not self._nothing and self._is_worth_keeping(reference, url, of_all=of_all):
            known[reference] = link
            self._count(url, *reference)
        return link

    def _parsed(self, base: str, link: str) -> str:
        plain = _PLAIN_URL.fullmatch(link) if len(link) <= self.MAX_KEPT_CHARS else None
        if plain is not None and plain[1] in self._origins:
            return link
        url = canonical(link, base) or ""
        if plain is not None and url == link and self._has_room:
            self._origins.add(plain[1])
            self._count(plain[1])
        return url

    def _is_worth_keeping(self, reference: Reference, url: str, *, of_all: bool) -> bool:
        text, _, context = reference
        is_short = max(len(text), len(url), len(context)) <= self.MAX_KEPT_CHARS
        return is_short and (of_all or not _needs_whole_base(text))

    def _count(self, *held: object) -> None:
        self._kept += 1
        self._kept_bytes += sum(map(getsizeof, held)) + _SLOT_BYTES


def _needs_whole_base(link: str) -> bool:
    """The link says so little that the file name or the query of its base shows in the answer: ``, `?q`, `#f`, `http:?q`."""
    return _WHOLE_BASE.match(link.translate(NO_BREAKS).strip(C0_AND_SPACE)) is not None
