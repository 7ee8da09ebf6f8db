"""Whose a URL is: its host, with and without the port. Asked for every new URL, so the answers are kept.

The text up to the first slash behind the host decides, and a site's pages share it. Canonical URLs are expected; what others
may hold besides is tidied here: userinfo is left out, letters become small, one dot at the end of the host goes (a host with
it is the same host), and so does the port that the scheme means anyway. International names are the crawler's concern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

#: A host's address as text, or None while it is not known. It never waits.
IpOf = Callable[[str], str | None]

#: Answers that are kept: some 6 MB.
KEPT = 16_384
#: A longer text before the path is no host, and is not kept.
_LONGEST_KEPT = 300

_WEB = ("http://", "https://")
_DEFAULT_PORTS = {"http": "80", "https": "443", "ftp": "21"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)")
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(?::0*([0-9]{0,5}))?")
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")


class Authority(NamedTuple):
    """Host and port of a URL, lower case, without userinfo."""

    name: str  #: host[:port]; the port only if it is not the scheme's own
    host: str  #: an IPv6 address keeps its brackets


def authority(url: str) -> Authority | None:
    """The authority of an absolute URL; None if it has no host. Cost: 0.3 µs if the host was asked for lately, else 3 µs."""
    slash = url.find("/", 8)  # behind the first letter of the host, or the scheme is not of the web
    start = url if slash < 0 else url[:slash]
    if len(start) > _LONGEST_KEPT or not start.startswith(_WEB):
        return _parsed(url)
    return _kept(start)


def authority_of(url: str) -> str | None:
    """host[:port] of an absolute URL, lower case, without userinfo; None if it has none."""
    found = authority(url)
    return None if found is None else found.name


def host_of(name: str) -> str:
    """The host in a host[:port]; an IPv6 address keeps its brackets."""
    host, colon, port = name.rpartition(":")
    return host if colon and (port.isdigit() or not port) else name


def path_of(url: str) -> str:
    """What stands behind the authority: path and query, beginning with a slash, without the fragment."""
    match = _URL.match(url)
    rest = url[match.end() :].partition("#")[0] if match else url
    return rest if rest.startswith("/") else f"/{rest}"


def is_address(host: str) -> bool:
    """The host is an IP address, not a name."""
    return host.startswith("[") or _IPV4.fullmatch(host) is not None


def address_of(host: str, ip_of: IpOf) -> str | None:
    """The host's address without brackets: itself if it is one, else what `ip_of` knows."""
    return host.strip("[]") if is_address(host) else ip_of(host)


def _parsed(url: str) -> Authority | None:
    match = _URL.match(url)
    found = match and _HOST_AND_PORT.fullmatch(match[2].rpartition("@")[2].lower())
    if not (match and found):
        return None
    host, port = found[1].removesuffix("."), found[2]
    if not host:
        return None
    is_default = not port or port == _DEFAULT_PORTS.get(match[1].lower())
    return Authority(host if is_default else f"{host}:{port}", host)


_kept = lru_cache(KEPT)(_parsed)
