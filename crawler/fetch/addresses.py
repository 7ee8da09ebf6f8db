"""Addresses of hosts: how they are written, which of them are public, and the record of a DNS lookup."""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import NamedTuple

from anabranch.crawler.urls.parsing import MAX_PORT

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}

#: IPv6 address in brackets or IPv4 address, and the port.
_WITH_PORT = re.compile(r"(?:\[([^\]]+)\]|([^:]+))(?::0*([0-9]{1,5}))?")

#: IPv6 addresses outside this block are not global unicast (IANA IPv6 address space registry).
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")

#: Blocks that are not public (IANA special-purpose address registries, RFC 6890).
_NOT_PUBLIC_IPV4 = (
    "0.0.0.0/8",  # unspecified, "this network"
    "10.0.0.0/8",  # private
    "100.64.0.0/10",  # carrier-grade NAT
    "127.0.0.0/8",  # loopback
    "169.254.0.0/16",  # link-local
    "172.16.0.0/12",  # private
    "192.0.0.0/24",  # protocol assignments
    "192.0.2.0/24",  # documentation
    "192.88.99.0/24",  # 6to4 relays
    "192.168.0.0/16",  # private
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, broadcast
)
_NOT_PUBLIC_IPV6 = (
    "2001::/23",  # protocol assignments, Teredo
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4: an IPv4 address inside
    "3fff::/20",  # documentation
)
_NOT_PUBLIC: dict[int, tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]] = {
    4: tuple(map(ipaddress.IPv4Network, _NOT_PUBLIC_IPV4)),
    6: tuple(map(ipaddress.IPv6Network, _NOT_PUBLIC_IPV6)),
}

#: The well-known prefix of NAT64: on a network without IPv4, DNS64 writes the site's IPv4 address behind it (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
#: The interface identifiers of ISATAP, with and without the universal bit: an IPv4 address follows (RFC 5214 section 6.1).
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An IP address, with a port if it differs from the URL's."""

    host: str  #: IP literal, without brackets
    port: int | None = None  #: None = the URL's own port
    family: socket.AddressFamily


def parse_address(text: str) -> Address:
    """Parse `ip[:port]`: "127.0.0.1", "127.0.0.1:8080", "::1", "[::1]", "[::1]:8080"; IPv6 before a port in brackets.

    Raises: ValueError, one line that repeats the text, also for names.
    """
    found = _WITH_PORT.fullmatch(text)
    ipv6, ipv4, port = found.groups() if found else (text, None, None)
    try:
        ip = ipaddress.IPv4Address(ipv4) if ipv4 else ipaddress.IPv6Address(ipv6)
    except ValueError:
        ip = None
    if ip is None or (port and not 1 <= int(port) <= MAX_PORT):
        raise ValueError(f"must be ip or ip:port, like 127.0.0.1:5353 or [::1]:53; not {text!r}")
    return Address(host=str(ip), port=int(port) if port else None, family=_FAMILIES[ip.version])


@lru_cache(maxsize=1024)  # called for each page, mostly for recent hosts
def ip_literal(host: str) -> Address | None:
    """The address if a URL's host is an IP literal, with or without brackets; None for a name."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        return None
    return Address(host=str(ip), family=_FAMILIES[ip.version])


def hosts_key(name: str) -> str:
    """The key of a name or wildcard in the order's [hosts] table."""
    return name.lower().removesuffix(".")


def interleaved(addresses: Iterable[Address]) -> tuple[Address, ...]:
    """The addresses with alternating families, the first one's family first, each family in its order (RFC 8305 section 4)."""
    ordered = tuple(addresses)
    first = [address for address in ordered if address.family == ordered[0].family]
    second = [address for address in ordered if address.family != ordered[0].family]
    return tuple(address for address in chain(*zip_longest(first, second)) if address is not None)


def is_public(address: str) -> bool:
    """Whether the IP literal is a public unicast address. Raises: ValueError if it is no IP literal.

    False for addresses with a scope, and for IPv6 forms that hold an IPv4 address (mapped, compatible, 6to4, Teredo); but one
    of NAT64's well-known prefix or of ISATAP is as public as the IPv4 address in it.
    """
    ip = ipaddress.ip_address(address)
    if ip.version == 6:
        inside = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if ip in _NAT64:
            return is_public(str(inside))
        if ip not in _GLOBAL_UNICAST or ip.scope_id is not None:
            return False
        if int(ip) >> 32 & 0xFFFFFFFF in _ISATAP and not is_public(str(inside)):
            return False
    return not any(ip in block for block in _NOT_PUBLIC[ip.version])


#: Media type of a lookup's record in crawl.log and in a WARC (RFC 4027).
MIME = "text/dns"
#: A positive answer is cached for its TTL, within these bounds. Entries of the hosts file have TTL 0.
MIN_TTL_S = 60.0
MAX_TTL_S = 6 * 3600.0
#: While the name servers are away, an answer is used for so long past its TTL (RFC 8767 section 5: at most 1 to 3 days).
MAX_STALE_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverOptions:
    """The families of addresses to look up, and how long an answer is cached."""

    ipv4: bool = True  #: A records, and IPv4 addresses in URLs and in the order's table
    ipv6: bool = True  #: AAAA records, and IPv6 addresses likewise
    min_ttl_s: float = MIN_TTL_S  #: an answer is cached at least so long
    max_ttl_s: float = MAX_TTL_S  #: and at most so long
    max_stale_s: float = MAX_STALE_S  #: and for so long after that, while the name servers are away

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
    """One DNS lookup of a host, and its result."""

    host: str
    start_s: float  #: epoch seconds
    end_s: float  #: epoch seconds
    records: tuple[AddressRecord, ...] = ()  #: empty: it failed
    reason: str = ""  #: the failure's message

    @property
    def url(self) -> str:
        """`dns:host`, as Heritrix writes it (RFC 4501)."""
        return f"dns:{self.host}"

    @property
    def status(self) -> int:
        """Heritrix's status: 1 found, -1 failed."""
        return 1 if self.records else -1

    @property
    def body(self) -> bytes:
        """The record as Heritrix archives it: a line with the time, then the resource records; empty if it failed."""
        if not self.records:
            return b""
        at = time.strftime("%Y%m%d%H%M%S", time.gmtime(self.start_s))
        rows = [f"{self.host}.\t{row.ttl_s}\tIN\t{row.kind}\t{row.address}" for row in self.records]
        return "\n".join([at, *rows, ""]).encode("utf-8", "backslashreplace")
