"""The limits of a run, looked at when something happens that could reach one: a page has ended, the time is up.

The room on a disk is the one thing that no event tells of, since others write there too: it is looked at every few seconds. A
look is one system call of some microseconds, in a thread, as a file server may let it wait. What comes in between two looks is
bounded by the line: at 1 Gbit/s 5 s bring 0.6 GB, less than the 1 GB that `min_free_disk` keeps by default. And a disk that is
full all the same harms nothing: the journal and the store refuse, and the crawl ends resumable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from anabranch.crawler.operating.course import Cause, Course
from anabranch.crawler.orders.limits import LimitsSection
from anabranch.crawler.orders.quantities import format_bytes
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.crawler.visit import Visit
from anabranch.crawler.workers import Dispose, PageLimit
from anabranch.frontier.models import OutcomeKind

log = structlog.get_logger(__name__)

#: Between two looks at the disk.
LOOK_S = 5.0
#: So much of `min_free_disk` must be free beyond it before a paused crawl goes on: it shall not come and go with each page.
MARGIN = 0.1

#: What a limit that is reached does: it ends the run for the one reason, or pauses it for the other.
_ENDINGS = {
    Cause.PAGES: WhyEnded.PAGE_LIMIT,
    Cause.BYTES: WhyEnded.SIZE_LIMIT,
    Cause.TIME: WhyEnded.TIME_LIMIT,
}


class Limits:
    """Pages, bytes and time of one run. Costs a comparison per visit."""

    def __init__(self, order: LimitsSection, course: Course, statistics: CrawlStatistics) -> None:
        self._order = order
        self._course = course
        self._statistics = statistics
        self._bytes_left: int | None = order.fetched_bytes or None

    def count_earlier(self, fetched_bytes: int) -> None:
        """Take what earlier runs of the job fetched from the bytes that are left."""
        if self._bytes_left is not None:
            self._bytes_left -= fetched_bytes
            self.look()

    def pages(self, done: int) -> PageLimit:
        """The tickets for what the job may fetch beside the pages that it has."""
        left = max(self._order.pages - done, 0) if self._order.pages else None
        self._tickets = PageLimit(left, on_reached=lambda: self._reached(Cause.PAGES, self._lift_pages))
        return self._tickets

    def counting(self, dispose: Dispose) -> Dispose:
        """The same disposition, after which the bytes are looked at."""
        if self._bytes_left is None:
            return dispose

        async def disposed(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            self.look()
            return kind

        return disposed

    def look(self) -> None:
        """Compare the bytes with their limit."""
        if self._bytes_left is not None and self._statistics.fetched_bytes >= self._bytes_left:
            self._reached(Cause.BYTES, self._lift_bytes)

    @contextmanager
    def clock(self) -> Iterator[None]:
        """While inside, the time runs."""
        if not self._order.time_s:
            yield
            return
        timer = asyncio.get_running_loop().call_later(self._order.time_s, self._reached, Cause.TIME, _nothing)
        try:
            yield
        finally:
            timer.cancel()

    def _reached(self, cause: Cause, lift: Callable[[], None]) -> None:
        if self._order.on_limit == "pause":
            self._course.pause(cause, lift=lift)
        else:
            self._course.stop(_ENDINGS[cause])

    def _lift_pages(self) -> None:
        self._tickets.lift()

    def _lift_bytes(self) -> None:
        self._bytes_left = None


class DiskWatch:
    """Pauses a crawl while a disk that it writes to has less room than it should, and has it go on when it has more."""

    def __init__(
        self,
        folders: Sequence[Path],
        least_bytes: int,
        course: Course,
        free: Callable[[Path], int] | None = None,
    ) -> None:
        self._folders = folders
        self._least_bytes = least_bytes
        self._course = course
        self._free = free or free_of
        self._is_low = False
        self.free_bytes: int | None = None  #: at the last look, on the fullest disk

    async def watch(self) -> None:
        """Look every `LOOK_S` seconds until cancelled; return at once if there is nothing to keep free."""
        while self._least_bytes:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Look once, and pause or go on."""
        if not self._least_bytes:
            return
        try:
            free_bytes, folder = await asyncio.to_thread(self._fullest)
        except OSError as error:
            log.warning("the free room of the disk cannot be told", reason=str(error))
            return
        self.free_bytes = free_bytes
        self._is_low = free_bytes < self._least_bytes * (1 + MARGIN if self._is_low else 1)
        if self._is_low:
            least = format_bytes(self._least_bytes)
            words = f"paused: {format_bytes(free_bytes)} are free at {folder}, min_free_disk is {least}"
            self._course.pause(Cause.DISK, words)
        else:
            self._course.resume(Cause.DISK)

    def _fullest(self) -> tuple[int, Path]:
        return min((self._free(folder), folder) for folder in self._folders)


def free_of(folder: Path) -> int:
    """What a user without privileges may still write to the folder's disk. Raises: OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _nothing() -> None:
    """A time that is up holds no more by itself."""
