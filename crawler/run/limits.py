"""The limits of a run: pages, bytes, time, and the free space of its disks. Each is reported to `run_state`.

The free space is polled, since other programs write there, too, and in a thread, because a file server may be slow. At 1 Gbit/s
a crawl writes 0.6 GB between two polls, less than the 1 GB that `min_free_disk` keeps by default. If a disk fills up all the
same, the journal and the store refuse, and the crawl ends resumable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import structlog

from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.order.sections import LimitsSection
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import ROOM_MAY_COME
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run.run_state import Cause, RunState
from anabranch.crawler.run.workers import PageLimit
from anabranch.crawler.visit import Dispose, Visit
from anabranch.frontier.records import OutcomeKind

log = structlog.get_logger(__name__)

#: Seconds between two polls of the free space.
POLL_S = 5.0
#: A paused crawl resumes when this part of `min_free_disk` is free beyond it: it shall not come and go with each page.
MARGIN = 0.1

#: What a disk must take before a crawl that it has ended is started again.
ROOM_BYTES = 4 << 20

#: How a run ends when a limit is reached, if the order does not have it paused.
_ENDINGS = {Cause.PAGES: WhyEnded.PAGE_LIMIT, Cause.BYTES: WhyEnded.SIZE_LIMIT, Cause.TIME: WhyEnded.TIME_LIMIT}

#: The key of each limit.
_KEYS = {Cause.PAGES: "pages", Cause.BYTES: "fetched_bytes", Cause.TIME: "time_s"}


class RunLimits:
    """Pages, bytes and time of one run. `done` pages and `fetched_bytes` come from earlier runs of the job."""

    def __init__(
        self, order: LimitsSection, run_state: RunState, statistics: CrawlStatistics, *, done: int, fetched_bytes: int
    ) -> None:
        self._order = order
        self._run_state = run_state
        self._statistics = statistics
        self._done = done
        self._fetched_bytes = fetched_bytes
        self._is_lifted: set[Cause] = set()  #: limits that the operator has lifted
        self._began_s: float | None = None  #: by the loop's clock; None: the time does not run
        self._timer: asyncio.TimerHandle | None = None
        self.pages = PageLimit(self._pages_left, on_reached=lambda: self.reached(Cause.PAGES, self._lift_pages))

    def change(self, order: LimitsSection) -> None:
        """Hold these limits from now on. One that differs holds again if the operator has lifted it, and counts at once."""
        before, self._order = self._order, order
        other = {cause for cause, key in _KEYS.items() if getattr(before, key) != getattr(order, key)}
        if before.on_limit != order.on_limit:
            other |= {*_KEYS}
        self._is_lifted -= other
        for cause in other:
            self._run_state.resume(cause)
        if Cause.PAGES in other:
            self.pages.change(self._pages_left)
        if Cause.TIME in other:
            self._set_timer()
        self.check_bytes()

    def counting(self, dispose: Dispose) -> Dispose:
        """Return a disposition that calls `dispose` and then compares the bytes with their limit."""

        async def disposed(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            self.check_bytes()
            return kind

        return disposed

    def check_bytes(self) -> None:
        """Compare the bytes with their limit."""
        most = self._order.fetched_bytes
        if not most or Cause.BYTES in self._is_lifted:
            return
        if self._fetched_bytes + self._statistics.fetched_bytes >= most:
            self.reached(Cause.BYTES, lambda: self._is_lifted.add(Cause.BYTES))

    @contextmanager
    def clock(self) -> Iterator[None]:
        """The time runs while this is entered."""
        self._began_s = asyncio.get_running_loop().time()
        self._set_timer()
        try:
            yield
        finally:
            self._began_s = None
            self._set_timer()

    def reached(self, cause: Cause, lift: Callable[[], None] | None = None) -> None:
        """A limit is reached: end the run or pause it, as the order says. `lift` is called if the operator resumes it."""
        if self._order.on_limit == "pause":
            self._run_state.pause(cause, lift=lift)
        else:
            self._run_state.stop(_ENDINGS[cause])

    @property
    def _pages_left(self) -> int | None:
        """The page limit of this run: the order's limit minus the pages of earlier runs; None: no limit."""
        return max(self._order.pages - self._done, 0) if self._order.pages else None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._began_s is not None and self._order.time_s:
            # A time limit that was reached needs no lifting: its timer is over.
            loop = asyncio.get_running_loop()
            left_s = self._began_s + self._order.time_s - loop.time()
            self._timer = loop.call_later(left_s, self.reached, Cause.TIME)

    def _lift_pages(self) -> None:
        self.pages.lift()  # `pages` may not be there yet when it is named


class DiskWatch:
    """Pauses a crawl while a disk that it writes to has too little free space, and resumes it when there is more."""

    def __init__(
        self, folders: Sequence[Path], least_bytes: int, run_state: RunState, free: Callable[[Path], int] | None = None
    ) -> None:
        self._folders = folders
        self._least_bytes = least_bytes
        self._run_state = run_state
        self._free = free or free_bytes_of
        self._is_low = False
        self.free_bytes: int | None = None  #: at the last poll, on the fullest disk

    async def watch(self) -> None:
        """Poll every `POLL_S` seconds until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.poll()

    def change(self, least_bytes: int) -> None:
        """Keep so much space free from the next poll on."""
        self._least_bytes = least_bytes
        if not least_bytes:
            self._run_state.resume(Cause.DISK)

    async def poll(self) -> None:
        """Look at the free space once, and pause or resume the crawl. Does nothing if no space has to be kept free."""
        if not self._least_bytes:
            return
        try:
            free_bytes, folder = await asyncio.to_thread(
                lambda: min((self._free(path), path) for path in self._folders)
            )
        except OSError as error:
            log.warning("the free space of the disk is unknown", reason=str(error))
            return
        self.free_bytes = free_bytes
        self._is_low = free_bytes < self._least_bytes * (1 + MARGIN if self._is_low else 1)
        if self._is_low:
            least = format_bytes(self._least_bytes)
            reason = f"paused: {format_bytes(free_bytes)} are free at {folder}, min_free_disk is {least}"
            self._run_state.pause(Cause.DISK, reason)
        else:
            self._run_state.resume(Cause.DISK)


def free_bytes_of(folder: Path) -> int:
    """The space of the folder's disk for users without privileges. Raises: OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def full_folder(folders: Sequence[Path]) -> Path | None:
    """The first folder whose disk takes no `ROOM_BYTES` more, for want of space or quota, or since it is read-only (blocks).

    The space of a disk does not tell a quota, so a file is made and removed.
    """
    for folder in folders:
        try:
            with TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
        except OSError as error:
            if error.errno in ROOM_MAY_COME:
                return folder
    return None
