"""Hosts and SURT prefixes: the parts of a URL that queues, gates and sheets are chosen by.

Canonical URLs are expected. Of others, userinfo is left out, letters become small, and a final dot of the host and the scheme's
default port are removed. International names are the crawler's concern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from publicsuffixlist import PublicSuffixList

from anabranch.frontier.errors import PolicyError

#: A host's address as text, or None while it is not known. Never blocks.
IpOf = Callable[[str], str | None]

#: Cached answers: some 6 MB.
KEPT = 16_384
#: A longer text before the path is not cached.
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
    """The authority of an absolute URL; None if it has no host. Cost: 0.3 µs from the cache, else 3 µs."""
    slash = url.find("/", 8)  # behind the first letter of the host, or the scheme is not of the web
    start = url if slash < 0 else url[:slash]
    if len(start) > _LONGEST_KEPT or not start.startswith(_WEB):
        return _parsed(url)
    return _kept(start)


def host_of(name: str) -> str:
    """The host in a host[:port]; an IPv6 address keeps its brackets."""
    host, colon, port = name.rpartition(":")
    return host if colon and (port.isdigit() or not port) else name


def path_of(url: str) -> str:
    """Path and query, beginning with a slash, without the fragment."""
    match = _URL.match(url)
    rest = url[match.end() :].partition("#")[0] if match else url
    return rest if rest.startswith("/") else f"/{rest}"


def is_address(host: str) -> bool:
    """The host is an IP address, not a name."""
    return host.startswith("[") or _IPV4.fullmatch(host) is not None


def unknown_address(host: str) -> None:
    """Knows no address: for programs that do not fetch and so ask no name server."""


def address_of(host: str, ip_of: IpOf) -> str | None:
    """The host's address without brackets: the host itself if it is an address, else the answer of `ip_of`."""
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


@lru_cache(KEPT)
def domain_of(host: str) -> str | None:
    """The registrable domain (`example.co.uk`), 5 µs; None for an IP address and for `localhost` or a public suffix."""
    return None if is_address(host) else _suffixes().privatesuffix(host)


@cache
def _suffixes() -> PublicSuffixList:
    """Read at the first use: 35 ms and some MB."""
    return PublicSuffixList()


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: Host, port, userinfo, the closing parenthesis, the path.
_TURNED = re.compile(r"\(?(\[[^\[\]()]*\]|[^():@\[\]/]*)(:[^()@/]*)?(@[^()/]*)?(?:(\))(/\S*)?)?")
_PORT = re.compile(r":0*([0-9]{1,5})")
_SHOWN = 100


class SurtPrefix(NamedTuple):
    """A part of the web, for http and https alike."""

    host: str  #: in the usual order of its labels, lower case; empty = every host
    with_subdomains: bool  #: hosts below it too
    port: int | None = None  #: None = every port
    path: str = ""  #: a prefix of path and query; empty = every path

    @property
    def covers_hosts(self) -> bool:
        """It covers whole hosts, not only one port or path."""
        return self.port is None and self.path in {"", "/"}

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"http://({surt_host(self.host)}{port}" + ("" if self.with_subdomains else f"){self.path}")


def surt_host(host: str) -> str:
    """The host's labels in reverse order: `com,example,www,`, with `%2C` for a comma; an IP address unchanged."""
    if not host or is_address(host):
        return host
    if "," in host or "%" in host:
        host = host.replace("%", "%25").replace(",", "%2C")
    return unescaped_surt_host(host)


def unescaped_surt_host(host: str) -> str:
    """Return a host's SURT in store formats before 4, where a host with a comma shares it with another host."""
    return ",".join(reversed(host.split("."))) + ","


def sharing_host(host: str) -> str:
    """The host without commas that had the same SURT as this name, before store format 4."""
    return host_of_surt_key(unescaped_surt_host(host))


@lru_cache(KEPT)
def surt_key(name: str) -> str:
    """The name of a work queue for a host[:port], as in Heritrix: `com,example,www,` or `com,example,www,#8080`."""
    host = host_of(name)
    port = name[len(host) + 1 :]
    return surt_host(host) + (f"#{port}" if port else "")


def host_of_surt_key(key: str) -> str:
    """The host of such a work queue."""
    turned = key.partition("#")[0]
    return unquote(".".join(reversed(turned[:-1].split(",")))) if turned.endswith(",") else turned


def parse_surt(text: str) -> SurtPrefix:
    """The part of the web that an operator names. Raises: PolicyError, which shows the text and the reason."""
    text = text.strip()
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if not text or not text.isprintable() or " " in text:
        raise _refused(text, "it is empty or has blanks")
    place = rest.partition("/")[0]
    if place.startswith("(") or ("," in place and not (scheme and "." in place)):
        return _turned(text, rest)
    return _plain(text, text if scheme else f"http://{text}")


def surt_around(url: str) -> SurtPrefix | None:
    """The host, port, and path up to the last slash, of any absolute URL; None if it has no host."""
    found = authority(url)
    if found is None:
        return None
    port = int(found.name[len(found.host) + 1 :] or 0) or None
    return SurtPrefix(found.host, False, port, path_of(url).partition("?")[0].rpartition("/")[0] + "/")


def _plain(text: str, url: str) -> SurtPrefix:
    """A host, or a URL up to its last slash."""
    around = surt_around(url)
    if around is None:
        raise _refused(text, "it has no host")
    is_one = is_address(around.host)
    if not is_one:
        _check_labels(text, around.host)
    if "/" not in url.partition("://")[2]:
        return SurtPrefix(around.host, around.port is None and not is_one, around.port)
    return around


def _turned(text: str, rest: str) -> SurtPrefix:
    """A prefix in Heritrix's form."""
    match = _TURNED.fullmatch(rest)
    if match is None:
        raise _refused(text, "it is not of the form http://(com,example,:8080)/path")
    turned, closed, path = match[1].lower(), bool(match[4]), match[5] or ""
    port = _port(text, match[2] or "")
    is_one = is_address(turned)
    if not turned and (closed or match[2]):
        raise _refused(text, "it has no host")
    host = turned if is_one or not turned else _host_of_turned(text, turned)
    return SurtPrefix(host, not (closed or port or is_one), port, path)


def _host_of_turned(text: str, turned: str) -> str:
    if "." in turned:
        raise _refused(
            text,
            "a label has a dot in it; the labels are turned round, as in com,example,; "
            "a comma inside a label is written %2C",
        )
    if not turned.endswith(","):
        raise _refused(text, "each label ends with a comma, as in com,example,")
    host = unquote(".".join(reversed(turned[:-1].split(",")))).lower()
    _check_labels(text, host)
    return host


def _check_labels(text: str, host: str) -> None:
    """Refuse international names, which URLs have as xn-- only, and empty labels."""
    if not host.isascii():
        raise _refused(text, "write international names as URLs have them, with xn--")
    if not all(host.split(".")):
        raise _refused(text, "a label is empty")


def _port(text: str, written: str) -> int | None:
    if not written:
        return None
    match = _PORT.fullmatch(written)
    if match is None:
        raise _refused(text, "the port is no number")
    is_default = int(match[1]) == {"https": 443}.get(text.partition("://")[0].lower(), 80)
    return None if is_default else int(match[1])


def _refused(text: str, reason: str) -> PolicyError:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return PolicyError(f"SURT prefix {shown!r} is refused: {reason}")
