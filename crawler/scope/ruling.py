"""Which URLs belong to the crawl. Pure: seeds in, yes or no out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from crawler.urls.parsing import authority_of

#: The kinds of scope, as the crawl order names them.
HOST: Final = "host"
PREFIX: Final = "prefix"


class Scope:
    """A URL is in if a seed opened its place and it is no more than `max_hops` hops away from a seed.

    Kind `host`: its host[:port] is that of a seed, whatever the scheme (the default ports of http and https are
    both unwritten, so a portal that moves to https stays in). Kind `prefix`: it starts with the URL of a seed cut
    after the last slash of its path, scheme included. URLs are canonical. Cost: O(1) for `host`; for `prefix` one
    look-up per slash, none beyond the longest prefix. Raises: ValueError for an unknown kind.
    """

    def __init__(self, kind: str, max_hops: int) -> None:
        places: dict[str, Callable[[str], bool]] = {HOST: self._is_on_host, PREFIX: self._is_below_prefix}
        if kind not in places:
            raise ValueError(f"scope {kind!r} is not known; choose one of {', '.join(places)}")
        self._is_in_place = places[kind]
        self._max_hops = max_hops
        self._authorities: set[str] = set()
        self._prefixes: set[str] = set()
        self._longest_prefix = 0

    def add_seed(self, url: str) -> None:
        """Open the place of a seed. Idempotent."""
        self._authorities.add(authority_of(url))
        path = url.partition("?")[0]
        prefix = path[: path.rindex("/") + 1]
        self._prefixes.add(prefix)
        self._longest_prefix = max(self._longest_prefix, len(prefix))

    def accepts(self, url: str, hops: str) -> bool:
        """Whether to fetch this canonical URL, found after these hops (one letter each; the seed itself has none)."""
        return len(hops) <= self._max_hops and self._is_in_place(url)

    def _is_on_host(self, url: str) -> bool:
        return authority_of(url) in self._authorities

    def _is_below_prefix(self, url: str) -> bool:
        end = url.index("//") + 2
        while (end := url.find("/", end, self._longest_prefix) + 1) > 0:
            if url[:end] in self._prefixes:
                return True
        return False
