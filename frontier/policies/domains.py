"""The registrable domain of a host, by the public suffix list that the library brings, private suffixes included."""

from __future__ import annotations

from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList

from anabranch.frontier.policies.authority import KEPT, is_address


@lru_cache(KEPT)
def domain_of(host: str) -> str | None:
    """The public suffix and one label more: `example.co.uk`, `name.github.io`. A suffix that is not listed is one label.

    None for an IP address, and for a host that has no such label: `localhost`, `co.uk`. Cost: 5 µs, less if asked lately.
    """
    return None if is_address(host) else _suffixes().privatesuffix(host)


@cache
def _suffixes() -> PublicSuffixList:
    """Read when the first domain is asked for: 35 ms and some MB."""
    return PublicSuffixList()
