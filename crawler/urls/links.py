"""Links of pages, resolved: most links of a page stood on the page before it, too, so the answers are remembered."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crawler.urls.parsing import C0_AND_SPACE, NO_BREAKS, WEB, canonical

_WHOLE_BASE = re.compile(r"(?:https?:)?(?:[?#]|$)", re.IGNORECASE)


class LinkResolver:
    """Resolves links, and remembers the answers.

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
            known = of_origin if link.startswith(("/", *WEB)) else of_directory
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
    return _WHOLE_BASE.match(link.translate(NO_BREAKS).strip(C0_AND_SPACE)) is not None
