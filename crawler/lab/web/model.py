"""What a web in a box is made of, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: Fetch times are made of these: nobody waits longer for a first byte than so many times the host's median.
SLOWEST = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """The web that is wanted."""

    pages: int = 20_000  #: URLs in all, embeds included, robots.txt not
    #: `portals`: the five portals of the published experiment, with sub-domains; `subdomains`: one portal with many; `hosts`:
    #: very many hosts by a power law.
    kind: str = "portals"
    hosts: int = 40  #: host names in all
    links: int = 10  #: mean links of a page beside those that make every page reachable
    latency_s: float = 0.1  #: median over the hosts of the time to the first byte
    bandwidth: float = 2e6  #: median over the hosts, bytes per second of one answer
    seed: int = 1


class Site(NamedTuple):
    """One host."""

    host: str
    urls: int  #: that it has, embeds included, robots.txt not
    latency_s: float  #: median time to the first byte
    bandwidth: float  #: bytes per second of one answer
    crawl_delay_s: float | None  #: what its robots.txt asks for; one host of a made web has one


class Page(NamedTuple):
    """One URL's answer, the same for each request."""

    status: int
    media_type: str
    size: int  #: bytes of the body
    latency_s: float  #: to the first byte
    transfer_s: float  #: from the first byte to the last
    links: tuple[str, ...]  #: absolute URLs; of a redirect its target alone
    embeds: tuple[str, ...]  #: absolute URLs


class Web(Protocol):
    """A web whose pages are computed or looked up. Nothing of it changes."""

    @property
    def seeds(self) -> tuple[str, ...]:
        """From here every URL is reachable, whatever fails."""

    @property
    def sites(self) -> Sequence[Site]:
        """All hosts."""

    @property
    def urls(self) -> int:
        """URLs in all, robots.txt not."""

    def page(self, url: str) -> Page | None:
        """What the URL answers, None if there is no such page (404). Cost: O(links), no state."""


def is_redirect(status: int) -> bool:
    """The answer leads to `links[0]`."""
    return status in (301, 302, 303, 307, 308)
