"""Finds the URLs that a complete crawl must fetch, without any code of the crawler.

The page table has the answer: each link states where it leads, so no HTML is read and no URL is parsed. For a tree of real
files see `tree_oracle`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from tests.site.page import MIB, Fault, Link, Page, Web, plain_body
from tests.site.pages import WEB

Scope = Literal["host", "prefix"]

#: How many redirects of a seed make their target a seed too.
SEED_REDIRECTS = 5
MAX_BODY_BYTES = 16 * MIB

#: Final statuses of pages that never get a whole answer: Heritrix's codes for "lost" and "timed out".
_FAULT_STATUS: Mapping[Fault, int] = {
    Fault.CLOSE: -3,
    Fault.GARBAGE: -3,
    Fault.STALL: -4,
    Fault.SILENCE: -4,
}


def expected(
    seeds: Iterable[str], scope: Scope = "host", *, table: Web = WEB, max_body_bytes: int = MAX_BODY_BYTES
) -> dict[str, int]:
    """URL -> final status of all that a complete crawl of the small web asks for, robots.txt files aside.

    Seeds are canonical http URLs. 429 and 503 that pass count by what follows them; a page that never
    answers has a negative status. A body is read up to `max_body_bytes` after decoding (which must
    be enough for the links before a page's filler). What robots.txt forbids is in `forbidden`; a host
    that does not exist is in neither.
    """
    walk = _Walk(seeds, scope, table, max_body_bytes)
    return {url: _final_status(walk.page(url)) for url in walk.found if not walk.is_forbidden(url)}


def forbidden(seeds: Iterable[str], scope: Scope = "host", *, table: Web = WEB) -> set[str]:
    """The URLs that the same crawl finds in scope and may not ask for, because of robots.txt."""
    walk = _Walk(seeds, scope, table, MAX_BODY_BYTES)
    return {url for url in walk.found if walk.is_forbidden(url)}


class _Walk:
    """A walk over the page table, breadth first, from the seeds and the targets of their redirects."""

    def __init__(self, seeds: Iterable[str], scope: Scope, table: Web, max_body_bytes: int) -> None:
        self._table = table
        self._max_body_bytes = max_body_bytes
        starts = [target for seed in seeds for target in self._with_redirects(seed)]
        self._bound_of = _BOUNDS[scope]
        self._bounds = {self._bound_of(start) for start in starts}
        self.found: list[str] = []
        self._walk(starts)

    def _walk(self, starts: list[str]) -> None:
        todo, seen = starts, set(starts)
        while todo:
            self.found += [url for url in dict.fromkeys(todo) if split_url(url)[0] in self._table]
            linked = dict.fromkeys(target for url in dict.fromkeys(todo) for target in self._targets(url))
            todo = [url for url in linked if url not in seen and self._in_scope(url)]
            seen.update(todo)

    def _with_redirects(self, seed: str) -> Iterator[str]:
        """The seed and the targets of its first redirects."""
        yield seed
        for _ in range(SEED_REDIRECTS):
            if not 300 <= self.page(seed).status < 400 or not (targets := self._targets(seed)):
                return
            seed = targets[0]
            yield seed

    def _in_scope(self, url: str) -> bool:
        return any(self._matches(url, bound) for bound in self._bounds)

    def _matches(self, url: str, bound: str) -> bool:
        return url.startswith(bound) if bound.endswith("/") else split_url(url)[0] == bound

    def is_forbidden(self, url: str) -> bool:
        host, target = split_url(url)
        return target in self._table[host].forbids

    def page(self, url: str) -> Page:
        """The page as it is once its first requests are over."""
        host, target = split_url(url)
        missing = Page(status=404, body=b"")
        return self._table[host].pages.get(target, missing) if host in self._table else missing

    def _targets(self, url: str) -> list[str]:
        """Return the URLs that the page's links lead to, in document order."""
        host = split_url(url)[0]
        if host not in self._table or self.is_forbidden(url):
            return []
        targets = (link.to for link in _readable_links(self.page(url), self._max_body_bytes))
        return [f"http://{host}{target}" if target.startswith("/") else target for target in targets if target]


def _readable_links(page: Page, max_body_bytes: int) -> tuple[Link, ...]:
    if page.fault is Fault.CUT:
        return page.links
    if page.fault is not None:
        return ()
    if 300 <= page.status < 400:
        return page.links
    if not page.is_html or page.status != 200:
        return ()
    whole = not page.late_links or len(plain_body(page)) <= max_body_bytes
    return page.links + page.late_links if whole else page.links


def _final_status(page: Page) -> int:
    return page.status if page.fault is None else _FAULT_STATUS.get(page.fault, page.status)


def split_url(url: str) -> tuple[str, str]:
    """(host with its port, target) of a canonical http URL."""
    host, slash, rest = url.removeprefix("http://").partition("/")
    return host, slash + rest


def _host_bound(url: str) -> str:
    return split_url(url)[0]


def _prefix_bound(url: str) -> str:
    path = url.partition("?")[0]
    return path[: path.rindex("/") + 1]


_BOUNDS = {"host": _host_bound, "prefix": _prefix_bound}
