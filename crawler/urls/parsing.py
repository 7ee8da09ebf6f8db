"""Parsing URLs: one canonical form for each, and the parts by which the crawl decides.

The canonical form is the `href` of the WHATWG URL Standard without fragment and userinfo: URLs that browsers distinguish stay
distinct. Limit: a query is always encoded in UTF-8, where a browser uses the encoding of the document that has the link.
"""

from __future__ import annotations

import re

import ada_url

#: Longer URLs are refused, before parsing and after it (servers refuse them; traps make them).
MAX_URL_CHARS = 8192
#: The largest number of a port.
MAX_PORT = 65_535
#: The standard strips these from both ends of a URL: C0 controls and space.
C0_AND_SPACE = "".join(map(chr, range(0x21)))

#: The beginnings of canonical URLs.
WEB = ("http://", "https://")
#: A scheme, unless a port follows: then the name is a host. Common schemes of pages are always schemes.
_HAS_SCHEME = re.compile(
    r"(javascript|mailto|data|tel|sms):|([a-z][a-z0-9+.-]*):(?!\d{1,5}(?:[/?#\\]|$))", re.IGNORECASE
)
_HOST_START = re.compile(r"//|\[|[^\W_]")
#: Typing errors that would pass as a host: a scheme without its colon (`http//a.test`), or words with spaces.
_NO_COLON = re.compile(r"https?[;,.]?/", re.IGNORECASE)
_MISTYPED = re.compile(rf"{_NO_COLON.pattern}|.*\s", re.IGNORECASE)
_WEB_SCHEME = re.compile(r"^https?:", re.IGNORECASE)
#: Header fields are decoded with `surrogateescape`: byte B that is no UTF-8 becomes the surrogate DC00 + B.
_BYTE = re.compile("[\udc80-\udcff]")
_FIRST_BYTE = 0xDC00
#: Tab and newlines: the standard removes them anywhere in a URL.
NO_BREAKS = dict.fromkeys(map(ord, "\t\n\r"))


def canonical(raw: str, base: str | None = None) -> str | None:
    """The canonical form of a URL, resolved against `base` if one is given; its own canonical form. Cost: about 2 µs.

    None if it does not parse, is not http or https, or is longer than `MAX_URL_CHARS`. Source: https://url.spec.whatwg.org/.
    """
    if len(raw) > MAX_URL_CHARS:
        return None
    try:
        href = ada_url.normalize_url(raw) if base is None else ada_url.join_url(base, raw)
    except ValueError:
        text = _BYTE.sub(lambda byte: f"%{ord(byte[0]) - _FIRST_BYTE:02X}", raw)
        return None if text == raw else canonical(text, base)
    if not href.startswith(WEB):
        return None
    url = href.partition("#")[0]
    if "@" in url:  # within the userinfo the parser encodes it as %40
        scheme, _, rest = url.partition("//")
        authority, slash, path = rest.partition("/")
        url = f"{scheme}//{authority.rpartition('@')[2]}{slash}{path}"
    return url if len(url) <= MAX_URL_CHARS else None


def authority_of(url: str) -> str:
    """host[:port] of a canonical URL; it has no default port."""
    return url.split("/", 3)[2]


def host_of(url: str) -> str:
    """The host of a canonical URL: lower-case, without port, an IPv6 address in its brackets."""
    authority = authority_of(url)
    end = authority.find("]") + 1 if authority.startswith("[") else authority.find(":")
    return authority if end < 0 else authority[:end]


def seed_url(raw: str) -> str | None:
    """The canonical form of what an operator typed; http without a scheme (`localhost:8080` is a host and a port).

    None if it is no http(s) URL: another scheme, a path (`/etc/seeds`), a SURT directive (`+http://(com,`), `http//a.test`,
    words with spaces between them.
    """
    text = raw.translate(NO_BREAKS).strip(C0_AND_SPACE)
    if _HAS_SCHEME.match(text):
        return canonical(text)
    if not _HOST_START.match(text) or _MISTYPED.match(text):
        return None
    return canonical(f"http://{text.removeprefix('//')}")


def refusal(raw: str) -> str:
    """Why text cannot be crawled, for people; empty if it can, or is no link. Pure."""
    scheme = _HAS_SCHEME.match(raw.translate(NO_BREAKS).strip(C0_AND_SPACE))
    name = "" if scheme is None else (scheme[1] or scheme[2]).lower()
    return wrong_part(raw) if name in {"", "http", "https"} else f"{name}: is neither http: nor https:"


def wrong_part(raw: str) -> str:
    """Name the part of a web address that makes it no URL, for people; empty if it is one, or no web address. Pure."""
    if len(raw) > MAX_URL_CHARS:
        return f"it has {len(raw):,} characters, and a URL has at most {MAX_URL_CHARS:,}"
    text = raw.translate(NO_BREAKS).strip(C0_AND_SPACE)
    rest = _WEB_SCHEME.sub("", text)
    if seed_url(text) is not None or (rest is text and not _HOST_START.match(text)) or _NO_COLON.match(text):
        return ""
    authority = re.split(r"[/?#\\]", rest.lstrip("/\\"), maxsplit=1)[0]
    return _wrong_authority(authority.rpartition("@")[2])


def _wrong_authority(authority: str) -> str:
    """Why no server can be named like this; empty if it can."""
    if authority.startswith("["):
        host, bracket, port = authority.partition("]")
        if not bracket:
            return f"the IPv6 address {authority} has no closing bracket"
        port = port.removeprefix(":")
        host += bracket
    else:
        host, _, port = authority.partition(":")
    if not host:
        return "it names no host"
    if any(char.isspace() for char in host):
        return f"the host {host!r} has a space"
    if port and not (port.isascii() and port.isdigit()):
        return f"the port {port!r} is not a number"
    if port and int(port) > MAX_PORT:
        return f"the port {port} is not between 0 and {MAX_PORT}"
    if canonical(f"http://{host}/") is None:
        return f"{host!r} is no host or address"
    return ""
