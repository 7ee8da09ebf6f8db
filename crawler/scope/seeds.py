"""The part of the web that seeds open, by the kind of scope that the order names; and sets of SURT prefixes."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

from anabranch.crawler.urls.parsing import authority_of, host_of
from anabranch.frontier.policies.hosts import SurtPrefix, authority, domain_of, path_of, surt_around
from anabranch.frontier.policies.sheets import HostTable


class SeedScope(Protocol):
    """The part of the web that all seeds together open."""

    words: ClassVar[str]  #: the accepted part, as in "accept …"

    def add(self, seed: str) -> None:
        """Add a seed. Idempotent."""

    def holds(self, url: str) -> bool:
        """Whether a seed has opened this URL."""


class HostScope:
    """host[:port] of a seed, with any scheme. Cost: O(1). Default ports are not written, so a move to https stays in scope."""

    words: ClassVar[str] = "what is on the host of a seed"

    def __init__(self) -> None:
        self._authorities: set[str] = set()

    def add(self, seed: str) -> None:
        """Open the host and port."""
        self._authorities.add(authority_of(seed))

    def holds(self, url: str) -> bool:
        """Whether a seed has this host and port."""
        return authority_of(url) in self._authorities


class PrefixScope:
    """URLs that begin with the URL of a seed, cut after its path's last slash. Cost: a look-up per slash of the prefix."""

    words: ClassVar[str] = "what is in the folder of a seed, or below"

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


class DomainScope:
    """All hosts of a seed's registrable domain, on every port; a seed without one opens its host. Cost: O(1), at most 5 µs."""

    words: ClassVar[str] = "what is in the domain of a seed"

    def __init__(self) -> None:
        self._domains: set[str] = set()

    def add(self, seed: str) -> None:
        """Open the registrable domain."""
        host = host_of(seed)
        self._domains.add(domain_of(host) or host)

    def holds(self, url: str) -> bool:
        """Whether the host belongs to the domain of a seed."""
        host = host_of(url)
        return (domain_of(host) or host) in self._domains


class SurtScope:
    """The host and folder of a seed, with any scheme; its port counts if it is not the scheme's default. Cost: 1 µs."""

    words: ClassVar[str] = "what the SURT prefix of a seed covers"

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


class PageScope:
    """The seeds themselves. Cost: O(1)."""

    words: ClassVar[str] = "the seeds"

    def __init__(self) -> None:
        self._urls: set[str] = set()

    def add(self, seed: str) -> None:
        """Open the URL."""
        self._urls.add(seed)

    def holds(self, url: str) -> bool:
        """Whether the URL is a seed."""
        return url in self._urls


class AnyScope:
    """The whole web."""

    words: ClassVar[str] = "everything"

    def add(self, seed: str) -> None:
        """Do nothing: all is open already."""

    def holds(self, url: str) -> bool:  # noqa: ARG002 - one of several kinds
        """True."""
        return True


#: The kinds of scope, as the crawl order names them.
SEED_SCOPES: Mapping[str, Callable[[], SeedScope]] = MappingProxyType(
    {
        "host": HostScope,
        "prefix": PrefixScope,
        "domain": DomainScope,
        "surt": SurtScope,
        "any": AnyScope,
        "page": PageScope,
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
