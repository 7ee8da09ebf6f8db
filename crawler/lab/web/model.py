"""The records of a generated web (`WebOptions`, `WebHost`, `WebPage`, `Web`), and the bodies of its pages.

A body has exactly the size of its page, and exactly its links and embeds. Filler is cut from one block of text.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import shake_128
from html import escape
from typing import NamedTuple, Protocol

#: The time to the first byte is at most this many times the host's median.
SLOWEST = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Options of a generated web."""

    pages: int = 20_000  #: URLs in all, embeds included, robots.txt not
    #: `portals`: the five portals of the published experiment, with sub-domains; `subdomains`: one portal with many; `hosts`:
    #: very many hosts by a power law.
    kind: str = "portals"
    hosts: int = 40  #: host names in all
    links: int = 10  #: mean random links of a page, besides those that make every page reachable
    latency_s: float = 0.1  #: median over the hosts of the time to the first byte
    bandwidth: float = 2e6  #: median over the hosts, bytes per second of one answer
    seed: int = 1


class WebHost(NamedTuple):
    """One host."""

    host: str
    urls: int  #: that it has, embeds included, robots.txt not
    latency_s: float  #: median time to the first byte
    bandwidth: float  #: bytes per second of one answer
    crawl_delay_s: float | None  #: what its robots.txt asks for; one host of a generated web has one


class WebPage(NamedTuple):
    """One URL's answer, the same for each request."""

    status: int
    media_type: str
    size: int  #: bytes of the body
    latency_s: float  #: to the first byte
    transfer_s: float  #: from the first byte to the last
    links: tuple[str, ...]  #: absolute URLs; of a redirect its target alone
    embeds: tuple[str, ...]  #: absolute URLs


class Web(Protocol):
    """A constant web of computed or stored pages."""

    @property
    def seeds(self) -> tuple[str, ...]:
        """URLs from which every URL is reachable, whatever fails."""

    @property
    def sites(self) -> Sequence[WebHost]:
        """All hosts."""

    @property
    def urls(self) -> int:
        """URLs in all, robots.txt not."""

    def page(self, url: str) -> WebPage | None:
        """Return the page of the URL; None if there is no such page (404). Cost: O(links), no state."""


def is_redirect(status: int) -> bool:
    """The answer leads to `links[0]`."""
    return status in (301, 302, 303, 307, 308)


_OPEN = '<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>page {mark:08x}</title>\n'
_LINK = '<p><a href="{url}">{mark:08x}</a>\n'
_SHEET = '<link rel="stylesheet" href="{url}">\n'
_IMAGE = '<img src="{url}" alt="">\n'
_BODY = "</head><body>\n"
_CLOSE = b"\n</body></html>\n"

_FIXED = len(_OPEN.format(mark=0)) + len(_BODY) + len(_CLOSE)
_PER_LINK = len(_LINK.format(url="", mark=0))
_PER_SHEET = len(_SHEET.format(url=""))
_PER_IMAGE = len(_IMAGE.format(url=""))

_BLOCK_BYTES = 1 << 20
#: What bodies of other types begin and end with.
_FRAMES = {
    "image/jpeg": (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", b"\xff\xd9"),
    "image/gif": (b"GIF89a", b";"),
    "text/css": (b"/* ", b" */\n"),
}


def least_bytes(links: Sequence[str], embeds: Sequence[str]) -> int:
    """The smallest size of a page with these links and embeds. Cost: a microsecond."""
    sheets = sum(url.endswith(".css") for url in embeds)
    texts = len(escape("".join(links))) + len(escape("".join(embeds)))
    return _FIXED + texts + _PER_LINK * len(links) + _PER_SHEET * sheets + _PER_IMAGE * (len(embeds) - sheets)


def body_of(page: WebPage, url: str) -> bytes:
    """The body, `page.size` bytes, different for each URL if there is room. Cost: some microseconds and the copying."""
    mark = zlib.crc32(url.encode())
    if page.links or page.embeds or (page.media_type == "text/html" and page.size >= _FIXED):
        head = _markup(page, mark).encode()
        return b"".join((head, _filler(page.size - len(head) - len(_CLOSE), mark), _CLOSE))
    before, after = _FRAMES.get(page.media_type, (b"", b""))
    if page.size < len(before) + len(after):
        before = after = b""
    return b"".join((before, _filler(page.size - len(before) - len(after), mark), after))


def _markup(page: WebPage, mark: int) -> str:
    """The part of a page before its text."""
    sheets = [_SHEET.format(url=escape(url)) for url in page.embeds if url.endswith(".css")]
    images = [_IMAGE.format(url=escape(url)) for url in page.embeds if not url.endswith(".css")]
    links = [_LINK.format(url=escape(url), mark=(mark + place) & 0xFFFFFFFF) for place, url in enumerate(page.links)]
    return "".join((_OPEN.format(mark=mark), *sheets, _BODY, *links, *images))


def _filler(size: int, mark: int) -> bytes:
    """`size` bytes of text; `mark` selects the place in the block. Raises: ValueError if the size is negative."""
    if size < 0:
        raise ValueError(f"the page is {-size} bytes too small for its links")
    block = _block()
    start = mark % len(block)
    if start + size <= len(block):
        return block[start : start + size]
    turns = size // len(block)
    return (block[start:] + block * turns + block[:start])[:size]


@cache
def _block() -> bytes:
    """Lines of words, always the same, without characters that are special in HTML, CSS or images."""
    letters = shake_128(b"filler").digest(_BLOCK_BYTES)
    return letters.translate(bytes(b"etaoin shrdlu cmfwyp etaoin  \n"[byte % 30] for byte in range(256)))
