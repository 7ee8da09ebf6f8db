"""Parts of the web by SURT prefix, as a set: is a URL in one of them? For lists of 100,000 entries."""

from __future__ import annotations

from bisect import bisect_right, insort

from anabranch.frontier.policies.authority import authority, path_of
from anabranch.frontier.policies.hosttable import HostTable
from anabranch.frontier.policies.surt import SurtPrefix


class SurtSet:
    """SURT prefixes. A look-up costs O(labels of the host + log(prefixes of that host)), whatever else is in the set.

    Prefixes that begin with another one of the same host and port are left out: the shorter one covers them. So of those left
    at most one covers a path, and it is the last that does not sort behind the path.
    """

    __slots__ = ("_hosts", "_paths")

    def __init__(self) -> None:
        self._hosts: HostTable[SurtPrefix] = HostTable()
        self._paths: dict[str, dict[int | None, list[str]]] = {}  #: host -> port (None: every port) -> sorted paths

    def add(self, prefix: SurtPrefix) -> None:
        """Put a prefix in. Idempotent. Cost: O(log n), and a move of the host's paths in memory."""
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
        """A prefix that covers this absolute URL; None if none does. Cost: 1 µs."""
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
