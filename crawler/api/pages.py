"""The pages of a crawl on their way to the program. The crawl waits while too many of them wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from anabranch.crawler.extract.content_type import XHTML
from anabranch.crawler.extract.encoding import html_in_utf8, plain_as_text
from anabranch.crawler.extract.html import Tree, parsed
from anabranch.crawler.extract.links import Link
from anabranch.crawler.fetch.response import Body, Response, content_type_of, header_fields
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.run.workers import Archive
from anabranch.crawler.urls.parsing import canonical
from anabranch.crawler.visit import Visit
from anabranch.frontier.records import ENDING

if TYPE_CHECKING:
    from anabranch.crawler.fetch.response import Headers

#: Most bytes of bodies that may wait for the program.
MOST_BYTES = 64 << 20
#: Media types of documents that may name their encoding themselves.
_HTML = frozenset({"text/html", XHTML})
#: Most bytes of a body that are decoded.
MOST_CONTENT_BYTES = 64 << 20


class WarcRef(NamedTuple):
    """The location of an archived page."""

    filename: str  #: of the finished file, below the job's `warc`
    offset: int  #: of its record, in bytes


class Page:
    """A URL that was answered, or that failed (`failures=True`).

    Its content stays readable as long as the program holds it. The page is done when the program asks for the next one.
    """

    def __init__(self, visit: Visit, done: asyncio.Future[None]) -> None:
        self.url: str = visit.lease.url  #: the URL that was fetched
        self.status: int = visit.status  #: the HTTP status; below 0 for a failure, as in crawl.log
        self.hops: str = visit.lease.hops  #: how it was found, a letter a hop: L link, E embed, R redirect …
        self.via: str | None = visit.lease.via  #: the page that links to it; None for a seed
        self.links: tuple[Link, ...] = tuple(visit.links)  #: what it links to, in the order of the document
        reason = visit.failure or visit.broken or (describe(visit.status) if visit.status < 0 else "")
        self.error: str = str(reason)  #: why it was not answered, or why a processor failed
        #: Where it is archived; None without `warc=True`, or if the page is not archived.
        self.warc_ref: WarcRef | None = (
            None if visit.place is None else WarcRef(visit.place.filename, visit.place.offset)
        )
        times = visit.fetch_times
        #: When the fetch began; None: nothing was fetched.
        self.fetched_at: datetime | None = None if times is None else datetime.fromtimestamp(times[0], UTC)
        self._response: Response | None = visit.response
        self._done = done
        self._is_kept = False  #: the body has been copied

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"

    @property
    def depth(self) -> int:
        """Hops from the seed."""
        return len(self.hops)

    @property
    def headers(self) -> Headers:
        """The fields of the answer, by name in any case; `headers.getall` has those that come several times."""
        return header_fields(()) if self._response is None else self._response.headers

    @property
    def mime(self) -> str:
        """The media type, lower case; empty if the server sent none."""
        return "" if self._response is None else self._response.media_type

    @property
    def redirect_to(self) -> str | None:
        """The target of a redirect, as an absolute URL; None if it is no redirect, or leads to no http or https URL."""
        if self._response is None or self._response.location is None:
            return None
        return canonical(self._response.location, self.url)

    @cached_property
    def content(self) -> bytes:
        """The body without its content coding, at most 64 MiB. Cost: 5 ms a MiB."""
        return b"" if self._response is None else self._response.content(MOST_CONTENT_BYTES)[0]

    @cached_property
    def html(self) -> Tree:
        """The tree of selectolax, of the first 16 MiB: `page.html.css("h1")`. Cost: 20 µs a KB of prose.

        Of a document that is nested beyond reason it has only the title, links and styles.
        """
        return parsed(self.content, content_type_of(self.headers))

    @cached_property
    def text(self) -> str:
        """The source of the page, decoded: in the encoding that the server or an HTML document names, else UTF-8."""
        content_type = content_type_of(self.headers)
        if self.mime in _HTML:
            return html_in_utf8(self.content, content_type).text.decode("utf-8", "replace")
        return plain_as_text(self.content, content_type)

    @cached_property
    def title(self) -> str:
        """The text of the element `title`; empty without one."""
        found = self.html.css_first("title")
        return "" if found is None else " ".join(found.text().split())

    def ack(self) -> None:
        """Mark the page as done before the program asks for the next one. Idempotent; works in any thread."""
        self._keep()
        loop = self._done.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, self._done)

    async def done(self) -> None:
        """Wait until the page is done. Its content stays readable, even if the wait is cancelled."""
        try:
            await self._done
        finally:
            self._keep()

    def _keep(self) -> None:
        """Copy the body into memory, once: the visit's own is closed when the page is done."""
        response, is_kept, self._is_kept = self._response, self._is_kept, True
        if response is not None and not is_kept:
            self._response = response._replace(body=Body.of(response.body.read()))


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class PageBuffer:
    """The pages that wait for the program, as the workers' `Delivery`. Used on the crawl's event loop."""

    def __init__(self, most: int, archive: Archive, now_s: Callable[[], float], *, failures: bool) -> None:
        """`most` pages may wait; `archive` writes a page's record before the program gets it."""
        self._most = most
        self._archive = archive
        self._now_s = now_s
        self._failures = failures
        self._waiting: deque[Page] = deque()
        self._bytes = 0  #: bytes of bodies of pages that are not done
        self._changed = asyncio.Event()
        self._is_ending = False  #: no more fetches start
        self._is_over = False  #: no more pages come

    async def wait_for_room(self) -> None:
        """Wait until there is room for another page."""
        while not (self._is_ending or self._has_room):
            await self._changed.wait()

    async def deliver(self, visit: Visit) -> None:
        """Hand a page over and wait until it is done. Failures are skipped unless they were requested."""
        if not self._is_wanted(visit):
            return
        await self._archive(visit)
        page = Page(visit, asyncio.get_running_loop().create_future())
        size = 0 if visit.response is None else visit.response.body.size
        self._waiting.append(page)
        self._bytes += size
        self._notify()
        try:
            await page.done()
        finally:
            if page in self._waiting:  # the crawl was stopped before the program took it
                self._waiting.remove(page)
            self._bytes -= size
            self._notify()

    async def take(self) -> Page | None:
        """Wait for the next page; None when the crawl is over."""
        while not self._waiting:
            if self._is_over:
                return None
            await self._changed.wait()
        page = self._waiting.popleft()
        self._notify()
        return page

    def end(self) -> None:
        """The crawl starts no more fetches: workers that wait for room continue."""
        self._is_ending = True
        self._notify()

    def close(self) -> None:
        """The crawl is over."""
        self._is_over = True
        self._notify()

    @property
    def _has_room(self) -> bool:
        return len(self._waiting) < self._most and self._bytes < MOST_BYTES

    def _is_wanted(self, visit: Visit) -> bool:
        """Whether the visit ends its URL with an answer (or a failure, if requested) and no processor stopped it."""
        outcome = decide(visit, self._now_s())
        if outcome is None or outcome.kind not in ENDING or visit.stopped_by:
            return False
        return visit.status > 0 or self._failures

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
