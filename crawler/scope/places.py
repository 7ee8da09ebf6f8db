"""What a seed opens: the part of the web around it, by the kind of scope that the order names.

Each kind takes seeds and answers whether a URL lies in a place that one of them opened. URLs are canonical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

from anabranch.crawler.scope.surts import SurtSet
from anabranch.crawler.urls.parsing import authority_of, host_of
from anabranch.frontier.policies.domains import domain_of
from anabranch.frontier.policies.surt import surt_around


class Place(Protocol):
    """The places of all seeds together."""

    words: ClassVar[str]  #: what is in, as in "accept …"

    def add(self, seed: str) -> None:
        """Open the place of a seed. Idempotent."""

    def holds(self, url: str) -> bool:
        """Whether the URL lies in a place that is open."""


class Hosts:
    """host[:port] of a seed, whatever the scheme.

    The default ports of http and https are both unwritten, so a portal that moves to https stays in. Cost: O(1).
    """

    words: ClassVar[str] = "what is on the host of a seed"

    def __init__(self) -> None:
        self._authorities: set[str] = set()

    def add(self, seed: str) -> None:
        """Open the host and port."""
        self._authorities.add(authority_of(seed))

    def holds(self, url: str) -> bool:
        """Whether host and port are those of a seed."""
        return authority_of(url) in self._authorities


class Prefixes:
    """What begins with the URL of a seed, cut behind the last slash of its path, scheme included.

    Cost: one look-up per slash, none beyond the longest prefix.
    """

    words: ClassVar[str] = "what is in the folder of a seed, or below"

    def __init__(self) -> None:
        self._prefixes: set[str] = set()
        self._longest = 0

    def add(self, seed: str) -> None:
        """Open the folder that the seed is in."""
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


class Domains:
    """All hosts of a seed's registrable domain, on every port; the domain is that of the public suffix list.

    A seed that has none (an address, localhost, a suffix itself) opens its host alone. Cost: O(1) for a host that was asked for
    lately, else 5 µs.
    """

    words: ClassVar[str] = "what is in the domain of a seed"

    def __init__(self) -> None:
        self._domains: set[str] = set()

    def add(self, seed: str) -> None:
        """Open the registrable domain."""
        host = host_of(seed)
        self._domains.add(domain_of(host) or host)

    def holds(self, url: str) -> bool:
        """Whether the host is of a seed's domain."""
        host = host_of(url)
        return (domain_of(host) or host) in self._domains


class Surts:
    """The SURT prefix that a seed stands for: its host, and its path up to the last slash, whatever the scheme.

    The port counts if the seed has one that is not the scheme's own. Cost: 1 µs.
    """

    words: ClassVar[str] = "what the SURT prefix of a seed covers"

    def __init__(self) -> None:
        self._surts = SurtSet()

    def add(self, seed: str) -> None:
        """Open the host and folder of the seed. No URL is refused: it may be the target of a redirect."""
        around = surt_around(seed)
        if around is not None:
            self._surts.add(around)

    def holds(self, url: str) -> bool:
        """Whether the prefix of a seed covers the URL."""
        return self._surts.covering(url) is not None


class Pages:
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


class Everywhere:
    """The whole web."""

    words: ClassVar[str] = "everything"

    def add(self, seed: str) -> None:
        """Nothing: all is open."""

    def holds(self, url: str) -> bool:  # noqa: ARG002 - one of several kinds
        """True."""
        return True


#: The kinds of scope, as the crawl order names them.
PLACES: Mapping[str, Callable[[], Place]] = MappingProxyType(
    {"host": Hosts, "prefix": Prefixes, "domain": Domains, "surt": Surts, "any": Everywhere, "page": Pages}
)
