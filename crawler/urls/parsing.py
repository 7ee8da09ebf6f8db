"""URLs: one spelling each, and the parts of them that the crawl decides by.

The canonical form is the `href` of the WHATWG URL Standard without fragment and userinfo, and nothing else: what browsers take
for two URLs stays two. Parsing is ada's, which is exact; this file adds what the crawl leaves out.

Limit: a query is always encoded in UTF-8. The standard encodes it in the encoding of the document it was found in, so a
non-ASCII query of, say, a GBK page that is not percent-encoded by its author gets another spelling than in a browser.
"""

from __future__ import annotations

import re

import ada_url

#: Longer URLs are no URLs to us, before parsing and after it (servers refuse them; traps make them).
MAX_URL_CHARS = 8192
#: What the standard strips from both ends of a URL before parsing: C0 controls and space.
C0_AND_SPACE = "".join(map(chr, range(0x21)))

#: What canonical URLs begin with.
WEB = ("http://", "https://")
#: A name before a port is a host, but for those that pages are full of.
_HAS_SCHEME = re.compile(
    r"(javascript|mailto|data|tel|sms):|([a-z][a-z0-9+.-]*):(?!\d{1,5}(?:[/?#\\]|$))", re.IGNORECASE
)
_HOST_START = re.compile(r"//|\[|[^\W_]")
#: Tab and newlines: the standard takes them out of a URL wherever they stand.
NO_BREAKS = dict.fromkeys(map(ord, "\t\n\r"))


def canonical(raw: str, base: str | None = None) -> str | None:
    """The canonical form of a URL, resolved against `base` if one is given.

    None if it does not parse, is not http or https, or is longer than `MAX_URL_CHARS`. Canonical URLs are their own canonical
    form. Cost: about 2 µs; see `extracting/resolving.py` for those of a page. Source: https://url.spec.whatwg.org/.
    """
    if len(raw) > MAX_URL_CHARS:
        return None
    try:
        href = ada_url.normalize_url(raw) if base is None else ada_url.join_url(base, raw)
    except ValueError:
        return None
    if not href.startswith(WEB):
        return None
    url = _without_userinfo(href.partition("#")[0])
    return url if len(url) <= MAX_URL_CHARS else None


def _without_userinfo(href: str) -> str:
    """The parsed URL without `user:password@`. An `@` of the userinfo itself is written %40 by the parser."""
    if "@" not in href:
        return href
    scheme, _, rest = href.partition("//")
    authority, slash, path = rest.partition("/")
    return f"{scheme}//{authority.rpartition('@')[2]}{slash}{path}"


def authority_of(url: str) -> str:
    """host[:port] of a canonical URL; the default port is not written in it."""
    return url.split("/", 3)[2]


def host_of(url: str) -> str:
    """The host of a canonical URL: lower-case, without port, an IPv6 address in its brackets."""
    authority = authority_of(url)
    end = authority.find("]") + 1 if authority.startswith("[") else authority.find(":")
    return authority if end < 0 else authority[:end]


def seed_url(raw: str) -> str | None:
    """The canonical form of what an operator typed; a missing scheme means http.

    `localhost:8080` is a host and a port, not a scheme. None if it is no http(s) URL even so: another scheme, a path
    (`/etc/seeds`, `./seeds`), a SURT directive (`+http://(com,`).
    """
    text = raw.translate(NO_BREAKS).strip(C0_AND_SPACE)
    if _HAS_SCHEME.match(text):
        return canonical(text)
    if not _HOST_START.match(text):
        return None
    return canonical(f"http://{text.removeprefix('//')}")


def refusal(raw: str) -> str:
    """Why what looks like a link is never a URL of a crawl, in words; empty if it is one, or looks like none."""
    text = raw.translate(NO_BREAKS).strip(C0_AND_SPACE)
    scheme = _HAS_SCHEME.match(text)
    name = "" if scheme is None else (scheme[1] or scheme[2]).lower()
    if name not in {"", "http", "https"}:
        return f"{name}: is neither http: nor https:"
    if len(raw) > MAX_URL_CHARS:
        return f"it has {len(raw):,} characters, and a URL has at most {MAX_URL_CHARS:,}"
    return ""
