"""What a look-up of a name asks for, and one that was really made, as logs and archives show it. No library is needed here."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anabranch.crawler.network.addresses import Address

#: What a look-up's record is, in crawl.log and in a WARC (RFC 4027).
MIME = "text/dns"

_FOUND, _FAILED = 1, -1

#: A positive answer is kept for its TTL, but no shorter and no longer than this. The hosts file's
#: entries have TTL 0.
MIN_TTL_S = 60.0
MAX_TTL_S = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverOptions:
    """What is asked for, and how long an answer holds."""

    ipv4: bool = True  #: A records, and IPv4 addresses in URLs and in the order's table
    ipv6: bool = True  #: AAAA records, and IPv6 addresses likewise
    min_ttl_s: float = MIN_TTL_S  #: an answer is kept at least so long
    max_ttl_s: float = MAX_TTL_S  #: and at most so long

    def __post_init__(self) -> None:
        """Raises: ValueError if nothing could ever be found, or the bounds cross."""
        if not (self.ipv4 or self.ipv6):
            raise ValueError("ipv4 and ipv6 are both off; one of them is needed")
        if self.min_ttl_s > self.max_ttl_s:
            raise ValueError(f"min_ttl {self.min_ttl_s:g} s is above max_ttl {self.max_ttl_s:g} s")

    @property
    def family(self) -> socket.AddressFamily:
        """The family to ask for."""
        if self.ipv4 and self.ipv6:
            return socket.AF_UNSPEC
        return socket.AF_INET if self.ipv4 else socket.AF_INET6

    def wants(self, address: Address) -> bool:
        """Whether an address may be used."""
        return self.ipv4 if address.family == socket.AF_INET else self.ipv6


class AddressRecord(NamedTuple):
    """One A or AAAA record."""

    kind: str  #: "A" or "AAAA"
    address: str
    ttl_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One question about a host, and what came of it."""

    host: str
    start_s: float  #: epoch seconds
    end_s: float  #: epoch seconds
    records: tuple[AddressRecord, ...] = ()  #: none: it failed
    reason: str = ""  #: the failure's message

    @property
    def url(self) -> str:
        """`dns:host`, as Heritrix writes it (RFC 4501)."""
        return f"dns:{self.host}"

    @property
    def status(self) -> int:
        """Heritrix's status: 1 found, -1 failed."""
        return _FOUND if self.records else _FAILED

    @property
    def body(self) -> bytes:
        """The record as Heritrix archives it: the time on a line of its own, then the resource records; empty if it failed."""
        if not self.records:
            return b""
        at = time.strftime("%Y%m%d%H%M%S", time.gmtime(self.start_s))
        rows = [f"{self.host}.\t{row.ttl_s}\tIN\t{row.kind}\t{row.address}" for row in self.records]
        return "\n".join([at, *rows, ""]).encode("utf-8", "backslashreplace")
