"""SURT: a URL with its host turned round, so that what belongs together sorts together; and prefixes of it.

    http://www.example.com:8080/path?q      http://(com,example,www,:8080)/path?q

An IP address is not turned round. Source of the form: Heritrix's `org.archive.util.SURT`. There a comma inside a label cannot
be told from one between labels, so here it is escaped: `http://a,b.test/` is `http://(test,a%2Cb,)/`. Each host has a SURT of
its own, and the SURT tells the host.

A SURT prefix names a part of the web. Operators write it in the form of Heritrix, or as a plain host or URL:

    http://(com,example,            example.com and all hosts below it, every port, http and https
    com,example,                    the same
    http://(com,example,www,)       www.example.com alone, every port
    (com,example,www,)/news/        what begins with /news/ there
    http://(com,example,:8080)/     port 8080 of example.com
    http://(                        everything
    example.com                     as the first
    http://www.example.com/a/b.htm  what begins with /a/ on www.example.com: cut behind the last slash, as Heritrix does
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.authority import KEPT, authority, host_of, is_address, path_of

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: Host, port, userinfo, the closing parenthesis, the path.
_TURNED = re.compile(r"\(?(\[[^\[\]()]*\]|[^():@\[\]/]*)(:[^()@/]*)?(@[^()/]*)?(?:(\))(/\S*)?)?")
_PORT = re.compile(r":0*([0-9]{1,5})")
_SHOWN = 100


class SurtPrefix(NamedTuple):
    """A part of the web. The scheme plays no role: http and https are one."""

    host: str  #: in its usual order, lower case; empty = every host
    with_subdomains: bool  #: hosts below it too
    port: int | None = None  #: None = every port
    path: str = ""  #: what path and query begin with; empty = whatever

    @property
    def covers_hosts(self) -> bool:
        """It covers whole hosts, not only a port or a path of one."""
        return self.port is None and self.path in {"", "/"}

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"http://({surt_host(self.host)}{port}" + ("" if self.with_subdomains else f"){self.path}")


def surt_host(host: str) -> str:
    """The host turned round, a comma behind each label: `com,example,www,`. An IP address stays as it is.

    A comma inside a label is `%2C`, a per cent sign `%25`.
    """
    if not host or is_address(host):
        return host
    if "," in host or "%" in host:
        host = host.replace("%", "%25").replace(",", "%2C")
    return unescaped_surt_host(host)


def unescaped_surt_host(host: str) -> str:
    """The same as programs before store format 4 wrote it: hosts with a comma shared it with others."""
    return ",".join(reversed(host.split("."))) + ","


def sharing_host(host: str) -> str:
    """The host without commas that had the same SURT as this name, before store format 4."""
    return host_of_surt_key(unescaped_surt_host(host))


@lru_cache(KEPT)
def surt_key(name: str) -> str:
    """The name of a work queue for a host[:port], as Heritrix has it: `com,example,www,` or `com,example,www,#8080`."""
    host = host_of(name)
    port = name[len(host) + 1 :]
    return surt_host(host) + (f"#{port}" if port else "")


def host_of_surt_key(key: str) -> str:
    """The host that such a work queue is of."""
    turned = key.partition("#")[0]
    return unquote(".".join(reversed(turned[:-1].split(",")))) if turned.endswith(",") else turned


def parse_surt(text: str) -> SurtPrefix:
    """The part of the web that an operator names. Raises: PolicyError, which shows the text and what is wrong."""
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
    """The part of the web around a URL: its host and port, and its path up to the last slash; None if it has no host.

    Takes every absolute URL, also those that sites make up; `parse_surt` is for what operators write, and refuses.
    """
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
    """What stands in the form of Heritrix."""
    match = _TURNED.fullmatch(rest)
    if match is None:
        raise _refused(text, "it is not of the form http://(com,example,:8080)/path")
    turned, closed, path = match[1].lower(), bool(match[4]), match[5] or ""
    port = _port(text, match[2] or "")
    is_one = is_address(turned)
    if not turned and (closed or match[2]):
        raise _refused(text, "it has no host")
    host = turned if is_one or not turned else _turned_back(text, turned)
    return SurtPrefix(host, not (closed or port or is_one), port, path)


def _turned_back(text: str, turned: str) -> str:
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
    """International names are kept as xn--, so another spelling would never be met."""
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
