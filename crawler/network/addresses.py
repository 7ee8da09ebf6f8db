"""IP addresses as they are written: in the order as `ip[:port]`, in a URL as its host."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}

#: IPv6 address in brackets or IPv4 address, and the port.
_WITH_PORT = re.compile(r"(?:\[([^\]]+)\]|([^:]+))(?::0*([0-9]{1,5}))?")
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a host can be reached."""

    host: str  #: IP literal, without brackets
    port: int | None = None  #: None = the URL's own port
    family: socket.AddressFamily


def parse_address(text: str) -> Address:
    """The address of `ip[:port]`: "127.0.0.1", "127.0.0.1:8080", "::1", "[::1]", "[::1]:8080".

    An IPv6 address with a port stands in brackets, so that its last group is no port. Names are refused.
    Raises: ValueError, one line that repeats the text.
    """
    found = _WITH_PORT.fullmatch(text)
    ipv6, ipv4, port = found.groups() if found else (text, None, None)
    try:
        ip = ipaddress.IPv4Address(ipv4) if ipv4 else ipaddress.IPv6Address(ipv6)
    except ValueError:
        ip = None
    if ip is None or (port and not 1 <= int(port) <= _MAX_PORT):
        raise ValueError(f"must be ip or ip:port, like 127.0.0.1:5353 or [::1]:53; not {text!r}")
    return Address(host=str(ip), port=int(port) if port else None, family=_FAMILIES[ip.version])


@lru_cache(maxsize=1024)  # asked for each page, and a crawl's next hosts are its last
def ip_literal(host: str) -> Address | None:
    """The address that a URL's host is by itself, brackets or none; None for a name."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        return None
    return Address(host=str(ip), family=_FAMILIES[ip.version])


def hosts_key(name: str) -> str:
    """By what the table of fixed answers knows a name, a wildcard or a host."""
    return name.lower().removesuffix(".")


def interleaved(addresses: Iterable[Address]) -> tuple[Address, ...]:
    """The addresses with the families in turn, the first one's family first, each family in its order (RFC 8305 section 4).

    So a dialler that goes down the list meets the other family at its second try, should the first lead nowhere.
    """
    ordered = tuple(addresses)
    first = [address for address in ordered if address.family == ordered[0].family]
    second = [address for address in ordered if address.family != ordered[0].family]
    return tuple(address for address in chain(*zip_longest(first, second)) if address is not None)
