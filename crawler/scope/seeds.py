"""The part of the web that seeds open, by the kind of scope that the order names; and sets of SURT prefixes."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from anabranch.crawler.urls.parsing import authority_of, host_of
from anabranch.frontier import HostTable
from anabranch.frontier.policies.hosts import SurtPrefix, authority, domain_of, path_of, surt_around


class SeedScope(Protocol):
    """The part of the web that all seeds together open."""

    words: str  #: the accepted part, as in "accept …"

    def add(self, seed: str) -> None:
        """Add a seed. Idempotent."""

    def holds(self, url: str) -> bool:
        """Whether a seed has opened this URL."""


class KeyScope:
    """URLs with the same key as a seed: its host and port, its domain, itself."""

    def __init__(self, words: str, key: Callable[[str], str]) -> None:
        self.words = words
        self.key = key
        self.keys: set[str] = set()  #: of all seeds

    def add(self, seed: str) -> None:
        """Open the URLs with the seed's key."""
        self.keys.add(self.key(seed))

    def holds(self, url: str) -> bool:
        """Whether a seed has the URL's key."""
        return self.key(url) in self.keys


def _domain_or_host(url: str) -> str:
    """The registrable domain, on every port; the host if it has none (an address, localhost). Cost: O(1), at most 5 µs."""
    host = host_of(url)
    return domain_of(host) or host


class PrefixScope:
    """URLs that begin with the URL of a seed, cut after its path's last slash. Cost: a look-up per slash of the prefix."""

    words = "what is in the folder of a seed, or below"

    def __init__(self) -> None:
        self._prefixes: set[str] = set()
        self._longest = 0

    def add(self, seed: str) -> None:
        """Open the seed's folder."""
        path = seed.partition("?")[0]
        prefix = path[: path.rindex("/") + 1]
        self._prefixes.add(prefix)
        self._longest = max(self._longest, len(prefix))

    def holds(self, url: str) -> bool:
        """Whether the URL begins with a seed's folder."""
        end = url.index("//") + 2
        while (end := url.find("/", end, self._longest) + 1) > 0:
            if url[:end] in self._prefixes:
                return True
        return False


class SurtScope:
    """The host and folder of a seed, with any scheme; its port counts if it is not the scheme's default. Cost: 1 µs."""

    words = "what the SURT prefix of a seed covers"

    def __init__(self) -> None:
        self._surts = SurtSet()

    def add(self, seed: str) -> None:
        """Open the host and folder of the seed. A URL without a SURT prefix, such as a redirect's target, is ignored."""
        around = surt_around(seed)
        if around is not None:
            self._surts.add(around)

    def holds(self, url: str) -> bool:
        """Whether the prefix of a seed covers the URL."""
        return self._surts.covering(url) is not None


class AnyScope:
    """The whole web."""

    words = "everything"

    def add(self, seed: str) -> None:
        """Do nothing: all is open already."""

    def holds(self, url: str) -> bool:  # noqa: ARG002 - one of several kinds
        """True."""
        return True


#: The kinds of scope, as the crawl order names them. The default port of a host is not part of its name.
SEED_SCOPES: Mapping[str, Callable[[], SeedScope]] = MappingProxyType(
    {
        "host": lambda: KeyScope("what is on the host of a seed", authority_of),
        "prefix": PrefixScope,
        "domain": lambda: KeyScope("what is in the domain of a seed", _domain_or_host),
        "surt": SurtScope,
        "any": AnyScope,
        "page": lambda: KeyScope("the seeds", str),
    }
)


class SurtSet:
    """A set of SURT prefixes. A look-up costs O(labels of the host + log(prefixes of that host)).

    A prefix that begins with another one of its host and port is left out. So at most one of the others covers a path: the last
    one that does not sort after the path.
    """

    __slots__ = ("_hosts", "_paths")

    def __init__(self) -> None:
        self._hosts: HostTable[SurtPrefix] = HostTable()
        self._paths: dict[str, dict[int | None, list[str]]] = {}  #: host -> port (None: every port) -> sorted paths

    def add(self, prefix: SurtPrefix) -> None:
        """Add a prefix. Idempotent. Cost: O(log n), and a move of the host's paths in memory."""
        if prefix.covers_hosts:
            self._hosts.put(prefix, prefix)
            return
        paths = self._paths.setdefault(prefix.host, {}).setdefault(prefix.port, [])
        if _covering(paths, prefix.path) is not None:
            return
        first = last = bisect_right(paths, prefix.path)
        while last < len(paths) and paths[last].startswith(prefix.path):
            last += 1
        del paths[first:last]
        insort(paths, prefix.path)

    def covering(self, url: str) -> SurtPrefix | None:
        """The prefix that covers this absolute URL, if any. Cost: 1 µs."""
        found = authority(url)
        if found is None:
            return None
        by_port = self._paths.get(found.host)
        if by_port is not None:
            port, path = int(found.name[len(found.host) + 1 :] or 0) or None, path_of(url)
            for each in {None, port}:
                begin = _covering(by_port.get(each, []), path)
                if begin is not None:
                    return SurtPrefix(found.host, False, each, begin)
        return self._hosts.get(found.host)


def _covering(paths: list[str], path: str) -> str | None:
    place = bisect_right(paths, path)
    return paths[place - 1] if place and path.startswith(paths[place - 1]) else None
