"""Makes links of references: resolves them against the page's base, keeps each URL once, and limits their number.

Most links of a page were on the page before it, so the resolver caches them. Most others are *plain*: they can be written in
one way only, so they are canonical, or become it behind the origin or directory of their page, without parsing. The cache, and
checking many plain ones together, save 2 to 10 % of the CPU of a page. All others are parsed by `urls.parsing`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, islice
from operator import methodcaller
from typing import NamedTuple, cast

from anabranch.crawler.extract.links import MAX_REFERENCES, Link, Reference
from anabranch.crawler.urls.parsing import C0_AND_SPACE, NO_BREAKS, WEB, canonical

#: References that are resolved together.
_BATCH = 256
#: How long the links of a document may be on average, and how many times as much text is resolved to find them: a `base` of
#: 8,000 characters makes 6,000 links of 50 MB out of a page of 50 KB, and each takes 20 µs.
CHARS_A_LINK = 256
RESOLVED_A_KEPT = 4

#: The result for a reference that leads nowhere.
NO_LINK = Link("", "")
#: Where the host of a web URL may begin.
_AUTHORITY = len("https://")
_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)
#: Memory of a cache entry without the characters of its texts: a reference, a link, their texts' heads and a slot.
_ENTRY_BYTES = 450
#: Plain links are as cheap to make again as to keep, and on a large site most occur once: one page in eight keeps its own.
_KEEP_EACH = 8
#: So many new links of a page are checked together.
_MANY = 4


def gathered(
    references: Iterable[Reference], base: str, max_links: int, resolver: LinkResolver
) -> tuple[list[Link], int]:
    """The links among the references, each URL once (the first wins), and how many more there were than `max_links`.

    `base` is a canonical URL. Beyond `max_links` links or their text references are only counted, up to `MAX_REFERENCES`.
    Memory: 256 bytes for each of `max_links`. Cost: 0.2 to 0.3 µs a reference, plus the resolver's.
    """
    links: dict[str, Link] = {}
    rest = islice(references, MAX_REFERENCES)
    kept_chars = resolved_chars = 0
    max_chars = max_links * CHARS_A_LINK
    while len(links) < max_links and kept_chars < max_chars and resolved_chars < RESOLVED_A_KEPT * max_chars:
        batch, earlier = list(islice(rest, _BATCH)), len(links)
        found = resolver.resolve(base, batch)
        for link in found:
            if (url := link.url) not in links:
                links[url] = link
        links.pop(NO_LINK.url, None)
        if len(batch) < _BATCH:
            break
        kept_chars += sum(map(len, islice(links, earlier, None)))
        resolved_chars += sum(len(link.url) or len(base) for link in found)
    kept = list(links.values())
    others = {text for text, _, _ in rest}
    return kept[:max_links], max(len(kept) - max_links, 0) + len(others)


def merged(first: Iterable[Link], second: Iterable[Link]) -> list[Link]:
    """The links of both, each URL once (the first wins)."""
    links: dict[str, Link] = {}
    for link in (*first, *second):
        links.setdefault(link.url, link)
    return list(links.values())


_Cache = dict[Reference, Link]


class _Form(NamedTuple):
    """References of one page that are written alike."""

    spelling: Spelling
    prefix: str  #: the part of the base in front of a plain one; empty for absolute ones
    cache: _Cache


class LinkResolver:
    """Resolves references to links, and caches them: absolute ones for every page, others by their origin or directory.

    One that depends on the whole base (`?page=2`) is not cached. A cached link is the same object each time. Beyond
    `max_entries` or `max_bytes` the cache is cleared before the next page: a rare cold start is cheaper than book-keeping at
    each hit. Used by one thread. Cost of a cached link: 0.1 µs if it is absolute, else 0.2 µs; of a new one 6 µs, or 1.5 µs if
    it is plain and its origin is known, and 0.6 µs if many of a page are such.
    """

    #: Longer links (above all data: URLs) and contexts are not cached, nor are the links of longer directories.
    MAX_KEPT_CHARS = 512

    def __init__(self, max_entries: int = 50_000, max_bytes: int = 24 << 20) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._kept = 0
        self._kept_bytes = 0
        self._absolute: _Cache = {}
        self._relative: dict[str, _Cache] = {}  # by origin, or by directory
        self._origins: set[str] = set()  # that are canonical
        self._uncached: _Cache = {}  # stays empty: of origins and directories that are too long
        self._pages = 0  # pages with many new links

    def __len__(self) -> int:
        """Cached links, and the origins and directories they belong to."""
        return self._kept

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the cache."""
        return self._kept_bytes

    def resolve(self, base: str, references: Sequence[Reference]) -> list[Link]:
        """The link of each reference, in order; `NO_LINK` if it leads nowhere. `base` is a canonical URL with a path."""
        if not references:
            return []
        if not self._has_room:
            self._absolute.clear()
            self._relative.clear()
            self._origins.clear()
            self._kept = self._kept_bytes = 0
        # The links of a page are mostly written alike, so all are looked up in the cache of the first one.
        text = references[0][0]
        if text.startswith(WEB):
            likely = self._absolute
        else:
            likely = self._cache_of(_origin(base) if text.startswith("/") else _directory(base))
        links = list(map(likely.get, references))
        if not all(links):
            self._fill(links, base, references, likely)
        return cast("list[Link]", links)

    def _fill(self, links: list[Link | None], base: str, references: Sequence[Reference], asked: _Cache) -> None:
        """Put in the missing links, none of which is in the cache `asked`."""
        missing = [number for number, link in enumerate(links) if link is None]
        directory, origin = _directory(base), _origin(base)
        of_directory, of_origin = self._cache_of(directory), self._cache_of(origin)
        if len(missing) >= _MANY:
            self._pages += 1
            for form in (
                _Form(urls_of(origin), "", self._absolute),
                _Form(PATHS, origin, of_origin),
                _Form(NAMES, directory, of_directory),
            ):
                missing = self._fill_plain(links, references, missing, form, asked)
                if not missing:
                    return
        for number in missing:
            reference = references[number]
            text = reference[0]
            if text.startswith("/"):
                cache, prefix = of_origin, origin
            elif text.startswith(WEB):
                cache, prefix = self._absolute, ""
            else:
                cache, prefix = of_directory, directory
            links[number] = cache.get(reference) or self._resolve_one(base, prefix, reference, cache)

    def _fill_plain(
        self, links: list[Link | None], references: Sequence[Reference], missing: list[int], form: _Form, asked: _Cache
    ) -> list[int]:
        """Put in the missing links of this form if they are many, short and all plain; returns what is still missing."""
        chosen = list(compress(missing, map(form.spelling.begins, [references[number][0] for number in missing])))
        if form.cache is not asked:
            chosen = [number for number in chosen if references[number] not in form.cache]
        if not self._are_plain([references[number][0] for number in chosen], form):
            return missing
        keep = self._pages % _KEEP_EACH == 0
        for number in chosen:
            text, hop, context = reference = references[number]
            link = links[number] = Link(form.prefix + text, hop, context)
            if keep and self._has_room:
                self._keep(reference, link, form.cache)
        return [number for number in missing if links[number] is None]

    def _are_plain(self, texts: Sequence[str], form: _Form) -> bool:
        if len(texts) < _MANY or form.cache is self._uncached:
            return False
        return max(map(len, texts)) <= self.MAX_KEPT_CHARS and form.spelling.are_plain(texts)

    def _resolve_one(self, base: str, prefix: str, reference: Reference, cache: _Cache) -> Link:
        """Resolve one reference, without parsing if it is plain. An absolute one has no `prefix`."""
        text, hop, context = reference
        if cache is self._uncached or len(text) > self.MAX_KEPT_CHARS:
            return _link(canonical(text, base), hop, context)
        if prefix:
            is_plain = is_plain_path(text) if text.startswith("/") else is_plain_name(text)
        else:
            is_plain = origin_if_plain(text) in self._origins
        if is_plain:
            link = Link(prefix + text, hop, context)
        else:
            url = canonical(text, base)
            if url == text:
                url = text  # one text instead of two
                self._learn_origin(text)
            link = _link(url, hop, context)
        if self._has_room and (is_plain or not prefix or not _needs_whole_base(text)):
            self._keep(reference, link, cache)
        return link

    def _learn_origin(self, url: str) -> None:
        """A URL that is canonical as it is written has a canonical origin."""
        origin = origin_if_plain(url)
        if origin is not None and self._has_room:
            self._origins.add(origin)
            self._count(len(origin))

    @property
    def _has_room(self) -> bool:
        return self._kept < self._max_entries and self._kept_bytes < self._max_bytes

    def _cache_of(self, place: str) -> _Cache:
        """The cache of an origin or a directory."""
        if len(place) > self.MAX_KEPT_CHARS:
            return self._uncached
        cache = self._relative.get(place)
        if cache is None:
            cache = self._relative[place] = {}
            self._count(len(place))
        return cache

    def _keep(self, reference: Reference, link: Link, cache: _Cache) -> None:
        text, _, context = reference
        if reference not in cache and max(len(link.url), len(context)) <= self.MAX_KEPT_CHARS:
            cache[reference] = link
            self._count(_bytes_of(text) + len(link.url) + _bytes_of(context))

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
    """The result depends on the file name or the query of the base: ``, `?q`, `#f`, `http:?q`."""
    return _WHOLE_BASE.match(link.translate(NO_BREAKS).strip(C0_AND_SPACE)) is not None


# Plain references: their characters are the same in canonical URLs, no segment begins with a dot, none is a scheme or a host.

#: Characters of a path that can be written in one way only.
_SAFE = r"A-Za-z0-9_~!$&'()*+,;=@.-"
#: Segments, none of which begins with a dot, and a query.
_REST = rf"(?:/(?!\.)[:{_SAFE}]*+)*+(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?-]*+)?"
#: A URL that is canonical if its origin is.
_URL = re.compile(rf"(https?://[a-z0-9.:\[\]-]++)(?=/){_REST}")
#: A path, and a name (or more of a path) that cannot be read as a scheme.
_PATH = re.compile(rf"(?=/)(?!//){_REST}")
_NAME = re.compile(rf"(?!\.)[{_SAFE}]++{_REST}")
#: Characters that both paths and queries may have anywhere.
_EVERYWHERE = (string.ascii_letters + string.digits + "_~!$&()*+,;=:@./?-").encode()
#: With these a text may be a scheme, another host, an empty reference, or a step in the tree.
_NOT_IN_NAMES = (":", "\n/", "\n.", "\n?", "\n\n")


def origin_if_plain(text: str) -> str | None:
    """The origin of a URL that is canonical if its origin is; None for any other text."""
    found = _URL.fullmatch(text)
    return None if found is None else found[1]


def is_plain_path(text: str) -> bool:
    """It makes a canonical URL behind an origin."""
    return _PATH.fullmatch(text) is not None


def is_plain_name(text: str) -> bool:
    """It makes a canonical URL behind a directory."""
    return _NAME.fullmatch(text) is not None


class Spelling(NamedTuple):
    """A form of plain references, and a check of many at once: at a tenth of the cost of a check of each."""

    begins: Callable[[str], bool]  #: the text may have this form; each text has at most one
    are_plain: Callable[[Sequence[str]], bool]  #: all of those that begin so are plain; False is no proof


def urls_of(origin: str) -> Spelling:
    """URLs of a canonical origin."""
    start = f"{origin}/"

    def are_plain(texts: Sequence[str]) -> bool:
        joined = _joined(texts)
        return joined.count(f"\n{start}") == len(texts) and _are_safe(joined, len(texts))

    return Spelling(methodcaller("startswith", start), are_plain)


def _are_plain_paths(texts: Sequence[str]) -> bool:
    joined = _joined(texts)
    return joined.count("\n/") == len(texts) and "\n//" not in joined and _are_safe(joined, len(texts))


def _are_plain_names(texts: Sequence[str]) -> bool:
    joined = _joined(texts)
    return not any(sign in joined for sign in _NOT_IN_NAMES) and _are_safe(joined, len(texts))


#: Paths, behind an origin.
PATHS = Spelling(methodcaller("startswith", "/"), _are_plain_paths)
#: Names, behind a directory.
NAMES = Spelling(lambda text: not text.startswith(("/", *WEB)), _are_plain_names)


def _joined(texts: Sequence[str]) -> str:
    """Each text between two line ends; a text that holds a line end is not safe."""
    return "\n".join(("", *texts, ""))


def _are_safe(joined: str, texts: int) -> bool:
    if "/." in joined or not joined.isascii():
        return False
    return len(joined.encode("ascii").translate(None, _EVERYWHERE)) == texts + 1
