"""The body of a page: as many bytes as the page has, with just its links and embeds. Filler is cut from one block of text."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from hashlib import shake_128
from html import escape

from anabranch.crawler.lab.web.model import Page

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
    """The size of a page that is nothing but these links and embeds; none can be smaller. Cost: a microsecond."""
    sheets = sum(url.endswith(".css") for url in embeds)
    texts = len(escape("".join(links))) + len(escape("".join(embeds)))
    return _FIXED + texts + _PER_LINK * len(links) + _PER_SHEET * sheets + _PER_IMAGE * (len(embeds) - sheets)


def body_of(page: Page, url: str) -> bytes:
    """The body, `page.size` bytes. Two URLs have different ones, if there is room. Cost: some microseconds and the copying."""
    mark = zlib.crc32(url.encode())
    if page.links or page.embeds or (page.media_type == "text/html" and page.size >= _FIXED):
        head = _markup(page, mark).encode()
        return b"".join((head, _filler(page.size - len(head) - len(_CLOSE), mark), _CLOSE))
    before, after = _FRAMES.get(page.media_type, (b"", b""))
    if page.size < len(before) + len(after):
        before = after = b""
    return b"".join((before, _filler(page.size - len(before) - len(after), mark), after))


def _markup(page: Page, mark: int) -> str:
    """All of a page that stands before its text."""
    sheets = [_SHEET.format(url=escape(url)) for url in page.embeds if url.endswith(".css")]
    images = [_IMAGE.format(url=escape(url)) for url in page.embeds if not url.endswith(".css")]
    links = [_LINK.format(url=escape(url), mark=(mark + place) & 0xFFFFFFFF) for place, url in enumerate(page.links)]
    return "".join((_OPEN.format(mark=mark), *sheets, _BODY, *links, *images))


def _filler(size: int, mark: int) -> bytes:
    """So many bytes of text, from another place of the block for another mark. Raises: ValueError if the size is negative."""
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
    """Lines of words, the same for ever; no character in it means anything to HTML, CSS or a picture."""
    letters = shake_128(b"filler").digest(_BLOCK_BYTES)
    return letters.translate(bytes(b"etaoin shrdlu cmfwyp etaoin  \n"[byte % 30] for byte in range(256)))
