"""References, resolved to links: most links of a page stood on the page before it, too, so they are remembered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

from crawler.extracting.links import Link, Reference
from crawler.urls.parsing import C0_AND_SPACE, NO_BREAKS, WEB, canonical

#: Where the host of a web URL may begin.
_AUTHORITY = len("https://")
_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)
#: Characters of a path that can be written in one way alone.
_SAFE = r"A-Za-z0-9_~!$&'()*+,;=@.-"
#: Segments, none of which begins with a dot, and a query.
_PLAIN_REST = rf"(?:/(?!\.)[:{_SAFE}]*+)*+(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?-]++)?"
#: A URL that is its own canonical form if its origin is.
_PLAIN_URL = re.compile(rf"(https?://[a-z0-9.:\[\]-]++)(?=/){_PLAIN_REST}")
#: What makes a canonical URL behind an origin: a path; or behind a directory: a name, or more of a path, that is no scheme's.
_PLAIN_PATH = re.compile(rf"(?=/)(?!//){_PLAIN_REST}")
_PLAIN_NAME = re.compile(rf"(?!\.)[{_SAFE}]++{_PLAIN_REST}")
#: What an entry takes in a table, beside the characters of its texts: a reference, a link, their texts' heads and a slot.
_ENTRY_BYTES = 450
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
    of a new one some 6 µs, or 1.5 µs if nothing in it can be written in two ways and its origin, or its page's, is known.
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
        links = list(map(self._likely(base, references).get, references))
        if not all(links):
            self._fill(links, base, references)
        return cast("list[Link]", links)

    def _likely(self, base: str, references: Sequence[Reference]) -> _Answers:
        """Where the answers are if all links of the page are written as the first one is, as they mostly are."""
        if not references or references[0][0].startswith(WEB):
            return self._absolute
        return self._of(_origin(base) if references[0][0].startswith("/") else _directory(base))

    def _fill(self, links: list[Link | None], base: str, references: Sequence[Reference]) -> None:
        """Put in those that are not there yet."""
        directory, origin = _directory(base), _origin(base)
        of_directory, of_origin = self._of(directory), self._of(origin)
        for number, reference in enumerate(references):
            if links[number] is not None:
                continue
            text = reference[0]
            if text.startswith("/"):
                known, place = of_origin, origin
            elif text.startswith(WEB):
                known, place = self._absolute, ""
            else:
                known, place = of_directory, directory
            links[number] = known.get(reference) or self._learn(base, place, reference, known)

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
            self._count(len(place))
        return known

    def _learn(self, base: str, place: str, reference: Reference, known: _Answers) -> Link:
        """`place`: the part of the base that the reference stands behind if it is plain; none if it is absolute."""
        text, hop, context = reference
        if known is self._nothing or len(text) > self.MAX_KEPT_CHARS:
            return _link(canonical(text, base), hop, context)
        if url := self._plain(place, text):
            link, is_for_all = Link(url, hop, context), True
        else:
            link = _link(self._parsed(base, text), hop, context)
            is_for_all = not place or not _needs_whole_base(text)
        if is_for_all and self._has_room and max(len(link.url), len(context)) <= self.MAX_KEPT_CHARS:
            known[reference] = link
            self._count(_bytes_of(text) + len(link.url) + _bytes_of(context))
        return link

    def _plain(self, place: str, text: str) -> str | None:
        """The URL if it can be had without parsing."""
        if not place:
            plain = _PLAIN_URL.fullmatch(text)
            return text if plain is not None and plain[1] in self._origins else None
        pattern = _PLAIN_PATH if text.startswith("/") else _PLAIN_NAME
        return place + text if pattern.fullmatch(text) else None

    def _parsed(self, base: str, text: str) -> str | None:
        """An absolute one that is canonical as it stands says so of its origin."""
        url = canonical(text, base)
        if url != text:
            return url
        plain = _PLAIN_URL.fullmatch(text)
        if plain is not None and self._has_room:
            self._origins.add(plain[1])
            self._count(len(plain[1]))
        return text  # one text instead of two

    def _count(self, size_bytes: int) -> None:
        self._kept += 1
        self._kept_bytes += size_bytes + _ENTRY_BYTES


def _link(url: str | None, hop: str, context: str) -> Link:
    return Link(url, hop, context) if url else NO_LINK


def _origin(base: str) -> str:
    return base[: base.index("/", _AUTHORITY)]


def _directory(base: str) -> str:
    path = base.partition("?")[0]
    return path[: path.rindex("/") + 1]


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def _needs_whole_base(link: str) -> bool:
    """The link says so little that the file name or the query of its base shows in the answer: ``, `?q`, `#f`, `http:?q`."""
    return _WHOLE_BASE.match(link.translate(NO_BREAKS).strip(C0_AND_SPACE)) is not None
