"""Links out of the header: `Location`, `Refresh`, `Link`, `Content-Location`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from anabranch.crawler.extracting.links import INFERRED, REDIRECT, Reference
from anabranch.crawler.extracting.refresh import refresh_url
from anabranch.crawler.extracting.rels import hop_of_rel

#: The relations of `Link` that are followed; most others are for programs.
RELS = frozenset(
    {"alternate", "canonical", "icon", "modulepreload", "next", "prefetch", "preload", "prev", "stylesheet"}
)
#: How much of all `Link` fields is read.
_MAX_CHARS = 64 * 1024

_SPACE = r"[ \t]*+"
#: A link-value of RFC 8288 section 3, and one of its parameters; commas and semicolons may stand empty.
_TARGET = re.compile(rf"[ \t,]*+<([^>]*+)>{_SPACE}")
_PARAMETER = re.compile(
    rf""";{_SPACE}(?:([^\s=;,"<>]++){_SPACE}(?:={_SPACE}(?:"((?:[^"\\]++|\\.)*+)"?|([^;,\s]*+)))?)?{_SPACE}""",
    re.DOTALL,
)
_NEXT = re.compile(r"""(?:[^,"]++|"(?:[^"\\]++|\\.)*+"?)*+""", re.DOTALL)
_QUOTED_PAIR = re.compile(r"\\(.)", re.DOTALL)


class Headers(Protocol):
    """The header fields of an answer; names in any case."""

    def getall(self, key: str, default: list[str]) -> list[str]:
        """All values of a field, in order."""
        ...


def header_links(headers: Headers, status: int) -> Iterator[Reference]:
    """The links of an answer's header. A 3xx has its `Location`, a 2xx the others (and `Location` if it is 201)."""
    is_redirect = 300 <= status < 400
    if is_redirect or status == 201:
        for text in headers.getall("Location", [])[:1]:
            yield text, REDIRECT, "Location"
    if is_redirect:
        return
    for text in headers.getall("Refresh", [])[:1]:
        if (url := refresh_url(text)) is not None:
            yield url, REDIRECT, "Refresh"
    for text in headers.getall("Content-Location", [])[:1]:
        yield text, INFERRED, "Content-Location"
    if fields := headers.getall("Link", []):
        yield from link_links(", ".join(fields))


def link_links(text: str) -> Iterator[Reference]:
    """The links of a `Link` field, with the hops that `rel` has in the element `link`. Source: RFC 8288. Cost: linear.

    One whose `anchor` says that it belongs to something else is none of the page's; the rest of a broken field is left out.
    """
    text = text[:_MAX_CHARS]
    position = 0
    while (target := _TARGET.match(text, position)) is not None:
        position = target.end()
        parameters: dict[str, str] = {}
        while (parameter := _PARAMETER.match(text, position)) is not None:
            position = parameter.end()
            name, quoted, bare = parameter.groups()
            if name:
                value = _QUOTED_PAIR.sub(r"\1", quoted) if quoted is not None else bare or ""
                parameters.setdefault(name.lower(), value)
        rel = " ".join(keyword for keyword in parameters.get("rel", "").lower().split() if keyword in RELS)
        hop = hop_of_rel(rel)
        if hop is not None and "anchor" not in parameters:
            yield target[1], hop, f"Link rel={rel}"
        rest = _NEXT.match(text, position)
        position = rest.end() if rest is not None else len(text)
