"""References, resolved to links: most links of a page stood on the page before it, too, so they are remembered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress, repeat
from typing import Final, NamedTuple, cast

from anabranch.crawler.extracting.links import Link, Reference
from anabranch.crawler.extracting.plain import (
    NAMES,
    PATHS,
    Spelling,
    is_plain_name,
    is_plain_path,
    origin_if_plain,
    urls_of,
)
from anabranch.crawler.urls.parsing import C0_AND_SPACE, NO_BREAKS, WEB, canonical

#: Where the host of a web URL may begin.
_AUTHORITY = len("https://")
_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)
#: What an entry takes in a table, beside the characters of its texts: a reference, a link, their texts' heads and a slot.
_ENTRY_BYTES = 450
#: Of many links that are plain, and cheap to have again, those of every so many pages are kept: of most links of a large crawl
#: the first time is the last one for long.
_KEEP_EACH: Final = 8
#: So many that are new are looked at together.
_MANY: Final = 4
#: What a reference is that leads nowhere.
NO_LINK: Final = Link("", "")

_new: Final = tuple.__new__  # a quarter of the price of Link(…)
_Answers = dict[Reference, Link]


class _Kind(NamedTuple):
    """References of one page that are written alike."""

    spelling: Spelling
    place: str  #: the part of the base that one stands behind if it is plain; none if it is absolute
    known: _Answers


class LinkResolver:
    """Makes links of references, and remembers them.

    References that start with `http://` or `https://` mean the same everywhere, those that start with `/` on all pages of an
    origin, others on all pages of a directory; one that depends on the whole base (`?page=2`) is not kept. Where many links of
    a page are new, and nothing in them can be written in two ways, one look is for all, and those of one page in eight stay.
    A link that is kept is the same object each time. Bounded by number and by bytes, for sites decide how long links and
    directories are: when there are `max_entries` or `max_bytes`, all are dropped before the next page, since a rare cold start
    is cheaper than book-keeping at each hit. The caller owns it, for one thread. Cost of a known link: 0.1 µs if it is
    absolute, else 0.2 µs; of a new one some 6 µs, or 1.5 µs if nothing in it can be written in two ways and its origin, or its
    page's, is known, and 0.6 µs if many of a page are such.
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
        self._filled = 0  # pages of which many links were missing

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
        likely = self._likely(base, references)
        links = list(map(likely.get, references))
        if not all(links):
            self._fill(links, base, references, likely)
        return cast("list[Link]", links)

    def _likely(self, base: str, references: Sequence[Reference]) -> _Answers:
        """Where the answers are if all links of the page are written as the first one is, as they mostly are."""
        if not references or references[0][0].startswith(WEB):
            return self._absolute
        return self._of(_origin(base) if references[0][0].startswith("/") else _directory(base))

    def _fill(self, links: list[Link | None], base: str, references: Sequence[Reference], asked: _Answers) -> None:
        """Put in those that are not there yet, none of which is among those `asked`."""
        missing = [number for number, link in enumerate(links) if link is None]
        directory, origin = _directory(base), _origin(base)
        of_directory, of_origin = self._of(directory), self._of(origin)
        if len(missing) >= _MANY:
            self._filled += 1
            of_urls = _Kind(urls_of(origin), "", self._absolute)
            for kind in (of_urls, _Kind(PATHS, origin, of_origin), _Kind(NAMES, directory, of_directory)):
                missing = self._fill_plain(links, references, missing, kind, asked)
                if not missing:
                    return
        for number in missing:
            reference = references[number]
            text = reference[0]
            if text.startswith("/"):
                known, place = of_origin, origin
            elif text.startswith(WEB):
                known, place = self._absolute, ""
            else:
                known, place = of_directory, directory
            links[number] = known.get(reference) or self._learn(base, place, reference, known)

    def _fill_plain(
        self,
        links: list[Link | None],
        references: Sequence[Reference],
        missing: list[int],
        kind: _Kind,
        asked: _Answers,
    ) -> list[int]:
        """Put in those of this kind, if they are many, short and all plain; the answer is what is missing then."""
        chosen = _spelled(references, missing, kind.spelling)
        if kind.known is not asked:
            chosen = [number for number in chosen if references[number] not in kind.known]
        met = [references[number] for number in chosen]
        if not self._are_plain(met, kind):
            return missing
        made = _placed(kind.place, met)
        for number, link in zip(chosen, made, strict=True):
            links[number] = link
        if self._filled % _KEEP_EACH == 0:
            self._keep_all(met, made, kind.known)
        return [] if len(chosen) == len(missing) else [number for number in missing if links[number] is None]

    def _are_plain(self, met: Sequence[Reference], kind: _Kind) -> bool:
        if len(met) < _MANY or kind.known is self._nothing:
            return False
        texts = [reference[0] for reference in met]
        return max(map(len, texts)) <= self.MAX_KEPT_CHARS and kind.spelling.are_plain(texts)

    def _keep_all(self, met: Sequence[Reference], made: Sequence[Link], known: _Answers) -> None:
        for reference, link in zip(met, made, strict=True):
            if self._has_room:
                self._keep(reference, link, known)

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
        """`place` and `known`: as in `_Kind`."""
        text, hop, context = reference
        if known is self._nothing or len(text) > self.MAX_KEPT_CHARS:
            return _link(canonical(text, base), hop, context)
        if url := self._plain(place, text):
            link, is_for_all = Link(url, hop, context), True
        else:
            link = _link(self._parsed(base, text), hop, context)
            is_for_all = not place or not _needs_whole_base(text)
        if is_for_all and self._has_room:
            self._keep(reference, link, known)
        return link

    def _keep(self, reference: Reference, link: Link, known: _Answers) -> None:
        text, _, context = reference
        if reference not in known and max(len(link.url), len(context)) <= self.MAX_KEPT_CHARS:
            known[reference] = link
            self._count(_bytes_of(text) + len(link.url) + _bytes_of(context))

    def _plain(self, place: str, text: str) -> str | None:
        """The URL if it can be had without parsing."""
        if not place:
            return text if origin_if_plain(text) in self._origins else None
        return place + text if (is_plain_path(text) if text.startswith("/") else is_plain_name(text)) else None

    def _parsed(self, base: str, text: str) -> str | None:
        """An absolute one that is canonical as it stands says so of its origin."""
        url = canonical(text, base)
        if url != text:
            return url
        origin = origin_if_plain(text)
        if origin is not None and self._has_room:
            self._origins.add(origin)
            self._count(len(origin))
        return text  # one text instead of two

    def _count(self, size_bytes: int) -> None:
        self._kept += 1
        self._kept_bytes += size_bytes + _ENTRY_BYTES


def _link(url: str | None, hop: str, context: str) -> Link:
    return Link(url, hop, context) if url else NO_LINK


def _spelled(references: Sequence[Reference], numbers: list[int], spelling: Spelling) -> list[int]:
    """Those that begin so; mostly all do."""
    begins = list(map(spelling.begins, [references[number][0] for number in numbers]))
    return numbers if all(begins) else list(compress(numbers, begins))


def _placed(place: str, met: Sequence[Reference]) -> list[Link]:
    """Plain references behind their place; of absolute ones the text is not there twice."""
    if not place:
        return list(map(_new, repeat(Link), met))
    return [_new(Link, (place + text, hop, context)) for text, hop, context in met]


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
