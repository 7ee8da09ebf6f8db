"""The record of a page of the small web, which the server serves and the oracle reads.

A page names its links twice: as the HTML spells them (`Link.raw`) and where a crawler must arrive
(`Link.to`), so that the expected set of URLs needs no URL parser and no HTML reader.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from html import escape
from types import MappingProxyType

HTML = "text/html; charset=utf-8"
MIB = 1 << 20


class Fault(Enum):
    """How a connection goes wrong, in place of a whole answer."""

    CLOSE = "the connection is closed without an answer"
    CUT = "half of the announced body is sent, then the connection is closed"
    STALL = "half of the announced body is sent, then nothing more"
    SILENCE = "the request is read and never answered"
    GARBAGE = "the answer is not HTTP"


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a page: how it is written, and where it leads."""

    #: The attribute's value as the page spells it (before HTML escaping).
    raw: str
    #: Where a crawler must arrive: an absolute canonical URL, or a path on the page's own host; None = it must not be followed.
    to: str | None
    #: A key of ELEMENTS.
    tag: str = "a"
    #: The value of the `rel` attribute; None = no such attribute.
    rel: str | None = None
    #: Heritrix's hop letter: L navigation, E embedded, R redirect.
    hop: str = "L"


#: How each element writes its link; {href} is quoted and escaped, {rel} is the attribute or nothing.
ELEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "a": "<p><a href={href}{rel}>a link</a></p>",
        "area": "<map name=m><area href={href}{rel} alt=area></map>",
        "link": "<link href={href}{rel}>",
        "iframe": "<iframe src={href}></iframe>",
        "frame": "<frame src={href}>",
        "img": "<img src={href} alt=image>",
        "script": "<script src={href}></script>",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer of one path of one host."""

    #: The links, in document order.
    links: tuple[Link, ...] = ()
    #: Links behind the filler: a reader that cuts the body never sees them.
    late_links: tuple[Link, ...] = ()
    #: Bytes of text between `links` and `late_links`.
    filler_bytes: int = 0
    #: What stands in the head before the links (a base element, a meta element).
    head: str = ""
    #: The body itself; None = HTML made of the links.
    body: bytes | None = None
    status: int = 200
    #: The Content-Type header; None = the answer has none.
    content_type: str | None = HTML
    #: The encoding in which the HTML is written.
    charset: str = "utf-8"
    #: Further headers.
    headers: tuple[tuple[str, str], ...] = ()
    #: True: the body is sent with `Content-Encoding: gzip`.
    gzip: bool = False
    #: Seconds between the request and the answer.
    delay_s: float = 0.0
    fault: Fault | None = None
    #: What the first requests get instead: one page per request.
    first: tuple["Page", ...] = ()

    def at(self, earlier: int) -> "Page":
        """Return the page that a request gets after `earlier` requests for the path."""
        return self.first[earlier] if earlier < len(self.first) else self

    @property
    def is_html(self) -> bool:
        """True if a crawler must read links from the body: a page without a type begins as HTML does."""
        return (self.content_type or HTML).lower().startswith(("text/html", "application/xhtml+xml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One virtual host: its pages by raw request target, and what its robots.txt forbids."""

    pages: Mapping[str, Page] = field(default_factory=dict)
    #: The targets that robots.txt keeps out, stated by hand.
    forbids: tuple[str, ...] = ()


#: Host name -> host. Names are lower case and without a port.
Web = Mapping[str, Host]

NOT_FOUND = Page(status=404, body=b"there is no such page here\n", content_type="text/plain")
WRONG_HOST = Page(status=421, body=b"this server has no such host\n", content_type="text/plain")


def go(*targets: str) -> tuple[Link, ...]:
    """Ordinary links: written exactly as they lead."""
    return tuple(Link(target, target) for target in targets)


def trap(raw: str, tag: str = "a", rel: str | None = None) -> Link:
    """A link that must not be followed."""
    return Link(raw, None, tag, rel)


def redirect(status: int, raw: str, to: str | None) -> Page:
    """A redirect to `to`, whose Location header is spelled `raw`."""
    return Page(
        status=status,
        links=(Link(raw, to, hop="R"),),
        headers=(("Location", raw),),
        body=b"moved\n",
        content_type="text/plain",
    )


def file(content_type: str | None, body: bytes) -> Page:
    """A file that is no HTML page."""
    return Page(body=body, content_type=content_type)


def failure(status: int, *headers: tuple[str, str]) -> Page:
    """An answer that only says what went wrong."""
    return Page(status=status, headers=headers, body=b"sorry\n", content_type="text/plain")


def versioned(page: Page) -> Page:
    """Add an ETag to a page that always answers 200: a request that names it gets 304. Other pages stay as they are."""
    if page.status != 200 or page.fault is not None or page.first:
        return page
    version = hashlib.sha1(repr(page).encode()).hexdigest()
    return replace(page, headers=(*page.headers, ("ETag", f'"{version}"')))


def render(link: Link) -> str:
    """The link as HTML."""
    rel = "" if link.rel is None else f' rel="{escape(link.rel)}"'
    return ELEMENTS[link.tag].format(href=f'"{escape(link.raw)}"', rel=rel)


def _filler(size_bytes: int) -> str:
    line = "<p>" + "a line of text that leads nowhere, " * 28 + "</p>\n"
    return line * -(-size_bytes // len(line)) if size_bytes else ""


def _html(page: Page) -> bytes:
    links = "\n".join(render(link) for link in page.links)
    late = "\n".join(render(link) for link in page.late_links)
    if any(link.tag == "frame" for link in page.links):
        inner = f"<frameset cols=50%,50%>\n{links}\n</frameset>"
    else:
        inner = f"<body>\n<h1>A page</h1>\n{links}\n{_filler(page.filler_bytes)}{late}\n</body>"
    text = f"<!DOCTYPE html>\n<html><head><title>A page</title>{page.head}</head>\n{inner}</html>\n"
    return text.encode(page.charset)


@cache
def _made(page: Page) -> bytes:
    return _html(page)


@cache
def _packed(page: Page) -> bytes:
    return gzip.compress(plain_body(page), 6, mtime=0)


def plain_body(page: Page) -> bytes:
    """The body before any Content-Encoding; HTML is made once per page."""
    return _made(page) if page.body is None else page.body


def sent_body(page: Page) -> bytes:
    """The body as it is sent; packed once per page."""
    return _packed(page) if page.gzip else plain_body(page)
