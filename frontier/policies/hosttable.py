"""Values for hosts by SURT prefix: the longest prefix decides."""

from __future__ import annotations

from typing import Generic, TypeVar

from anabranch.frontier.policies.surt import SurtPrefix

T = TypeVar("T")


class HostTable(Generic[T]):
    """A value for each prefix that covers whole hosts. A look-up costs O(labels of the host), however many prefixes."""

    __slots__ = ("_alone", "_with_subdomains")

    def __init__(self) -> None:
        self._alone: dict[str, T] = {}
        self._with_subdomains: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._alone) + len(self._with_subdomains)

    def put(self, prefix: SurtPrefix, value: T) -> None:
        """The value of this prefix, in the place of the one it had."""
        assert prefix.covers_hosts, "a host has one value, whatever the port and the path"
        table = self._with_subdomains if prefix.with_subdomains else self._alone
        table[prefix.host] = value

    def get(self, host: str) -> T | None:
        """The value of the longest prefix that covers the host; None if none does."""
        found = self._alone.get(host)
        if found is not None:
            return found
        below = self._with_subdomains
        while (found := below.get(host)) is None and host:
            host = host.partition(".")[2]
        return found

    def named(self, host: str) -> T | None:
        """The value of a prefix that names this very host; None if none does."""
        found = self._alone.get(host)
        return self._with_subdomains.get(host) if found is None else found
