"""URLs: one spelling each, and the parts of them that the crawl decides by.

The canonical form is the `href` of the WHATWG URL Standard without fragment and userinfo, and nothing else: what browsers take
for two URLs stays two. Parsing is ada's, which is exact; this file adds what the crawl leaves out.

Limit: a query is always encoded in UTF-8. The standard encodes it in the encoding of the document it was found in, so a
non-ASCII query of, say, a GBK page that is not percent-encoded by its author gets another spelling than in a browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import ada_url

#: Longer URLs are no URLs to us, before parsing and after it (servers refuse them; traps make them).
MAX_URL_CHARS = 8192
#: What the standard strips from both ends of a URL before parsing: C0 controls and space.
C0_AND_SPACE = "".join(map(chr, range(0x21)))

_WEB = ("http://", "https://")
_HAS_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?!\d{1,5}(?:[/?#\\]|$))", re.IGNORECASE)
_HOST_START = re.compile(r"//|\[|[^\W_]")
#: Tab and newlines: the standard takes them out of a URL wherever they stand.
_NO_BREAKS = dict.fromkeys(map(ord, "\t\n\r"))
_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)


def canonical(raw: str, base: str | None = None) -> str | None:
    """The canonical form of a URL, resolved against `base` if one is given.

    None if it does not parse, is not http or https, or is longer than `MAX_URL_CHARS`. Canonical URLs are their own canonical
    form. Cost: about 2 µs; see `LinkResolver` for links. Source: https://url.spec.whatwg.org/.
    """
    if len(raw) > MAX_URL_CHARS:
        return None
    try:
        href = ada_url.normalize_url(raw) if base is None else ada_url.join_url(base, raw)
    except ValueError:
        return None
    if not href.startswith(_WEB):
        return None
    url = _without_userinfo(href.partition("#")[0])
    return url if len(url) <= MAX_URL_CHARS else None


def _without_userinfo(href: str) -> str:
    """The parsed URL without `user:password@`. An `@` of the userinfo itself is written %40 by the parser."""
    if "@" not in href:
        return href
    scheme, _, rest = href.partition("//")
    authority, slash, path = rest.partition("/")
    return f"{scheme}//{authority.rpartition('@')[2]}{slash}{path}"


def authority_of(url: str) -> str:
    """host[:port] of a canonical URL; the default port is not written in it."""
    return url.split("/", 3)[2]


def host_of(url: str) -> str:
    """The host of a canonical URL: lower-case, without port, an IPv6 address in its brackets."""
    authority = authority_of(url)
    end = authority.find("]") + 1 if authority.startswith("[") else authority.find(":")
    return authority if end < 0 else authority[:end]


def seed_url(raw: str) -> str | None:
    """The canonical form of what an operator typed; a missing scheme means http.

    `localhost:8080` is a host and a port, not a scheme. None if it is no http(s) URL even so: another scheme, a path
    (`/etc/seeds`, `./seeds`), a SURT directive (`+http://(com,`).
    """
    text = raw.translate(_NO_BREAKS).strip(C0_AND_SPACE)
    if _HAS_SCHEME.match(text):
        return canonical(text)
    if not _HOST_START.match(text):
        return None
    return canonical(f"http://{text.removeprefix('//')}")


class LinkResolver:
    """Resolves links, and remembers the answers: most links of a page stood on the page before it, too.

    Answers are kept per origin for links that start with `/`, `http://` or `https://`, else per directory of the base; a link
    that depends on the whole base (`?page=2`) is not kept. Bounded: when `max_entries` are held all are dropped before the next
    page, since a rare cold start is cheaper than book-keeping at each hit; long links are not kept. The caller owns it, for
    one thread. Cost of a known link: 0.15 µs.
    """

    #: Longer links (data: URLs above all) and longer answers are not remembered.
    MAX_KEPT_CHARS = 512

    def __init__(self, max_entries: int = 50_000) -> None:
        self._max_entries = max_entries
        self._kept = 0
        self._answers: dict[str, dict[str, str | None]] = {}

    def __len__(self) -> int:
        """What is held: answers, and the origins and directories they belong to."""
        return self._kept + len(self._answers)

    def resolve(self, base: str, links: Iterable[str]) -> list[str | None]:
        """The canonical form of each link, in order; None for those that have none.

        `base` is a canonical URL, with no slash missing: its text up to the last slash is the key of what is remembered.
        """
        if len(self) >= self._max_entries:
            self._answers.clear()
            self._kept = 0
        path = base.partition("?")[0]
        of_directory = self._answers.setdefault(path[: path.rindex("/") + 1], {})
        of_origin = self._answers.setdefault(base[: base.index("/", len("https://"))], {})
        answers = []
        for link in links:
            known = of_origin if link.startswith(("/", *_WEB)) else of_directory
            try:
                answers.append(known[link])
            except KeyError:
                answers.append(self._learn(base, link, known))
        return answers

    def _learn(self, base: str, link: str, known: dict[str, str | None]) -> str | None:
        url = canonical(link, base)
        if len(self) < self._max_entries and self._is_worth_keeping(link, url):
            known[link] = url
            self._kept += 1
        return url

    def _is_worth_keeping(self, link: str, url: str | None) -> bool:
        longest = max(len(link), len(url or ""))
        return longest <= self.MAX_KEPT_CHARS and not _needs_whole_base(link)


def _needs_whole_base(link: str) -> bool:
    """The link says so little that the file name or the query of its base shows in the answer: ``, `?q`, `#f`, `http:?q`."""
    return _WHOLE_BASE.match(link.translate(_NO_BREAKS).strip(C0_AND_SPACE)) is not None
