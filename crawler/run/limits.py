"""The limits of a run: pages, bytes, time, and the free space of its disks. Each is reported to `run_state`.

The free space is polled, since other programs write there, too, and in a thread, because a file server may be slow. At 1 Gbit/s
a crawl writes 0.6 GB between two polls, less than the 1 GB that `min_free_disk` keeps by default. If a disk fills up all the
same, the journal and the store refuse, and the crawl ends resumable.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import structlog

from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import ROOM_MAY_COME
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run.run_state import Cause, RunState

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


class PageTickets:
    """A ticket for each page that may be fetched, for one event loop.

    A visit takes one after its lease and before its fetch, and gives it back if no page comes of it. At first nothing is
    limited. `on_short` is called when a visit waits.
    """

    def __init__(self, on_short: Callable[[], None]) -> None:
        self.granted = 0  #: since the run began, or since its worker joined
        self.pages = 0  #: that came of them
        self.is_limited = False
        self._out = 0  #: at visits
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._on_short = on_short
        self._was_asked = False  #: since the last `give_back`
        self._is_refusing = False
        self._is_ended = False

    @property
    def short(self) -> int:
        """Visits that wait for a ticket."""
        return len(self._waiting)

    @property
    def must_wait(self) -> bool:
        """No ticket is free."""
        return self.is_limited and self._free <= 0

    async def take(self) -> bool:
        """Wait for a ticket. Returns False if the visit is to give its lease back, since there will be none."""
        self._was_asked = True
        if self._is_ended or self._is_refusing:
            return False
        if not self.must_wait:
            self._out += 1
            return True
        ticket: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(ticket)
        self._on_short()
        try:
            return await ticket
        except asyncio.CancelledError:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            elif not ticket.cancelled() and ticket.result():
                self.settle(is_page=False)
                self.serve()
            raise

    def settle(self, *, is_page: bool) -> None:
        """Return a ticket: spent if it produced a page, else free. `serve` hands it on."""
        self._out -= 1
        self.pages += is_page

    def serve(self) -> None:
        """Give free tickets to visits that wait."""
        while self._waiting and (self._free > 0 or not self.is_limited):
            self._answer(is_given=True)

    def grant(self, granted: int) -> None:
        """Set the number of tickets in all since the run began, and serve."""
        self.granted = granted
        self._is_refusing = False
        self.serve()

    def give_back(self) -> int | None:
        """Return the free tickets if none was asked for since the last call.

        Returns how many stay granted; None: nothing was returned.
        """
        was_asked, self._was_asked = self._was_asked, False
        if was_asked or self._waiting or self._free <= 0:
            return None
        self.granted -= self._free
        return self.granted

    def refuse(self) -> None:
        """Let visits that wait, or come before there are tickets again, give their leases back."""
        self._is_refusing = True
        while self._waiting:
            self._answer(is_given=False)

    def end(self) -> None:
        """The run ends: visits that wait, or come later, give their leases back."""
        self._is_ended = True
        self.refuse()

    def lift(self) -> None:
        """Remove the limit, and serve."""
        self.is_limited = self._is_refusing = False
        self.serve()

    def limit(self) -> None:
        """Count tickets from now on; pages that are done or under way have had theirs."""
        self._is_refusing = False
        if not self.is_limited:
            self.is_limited = True
            self.granted = max(self.granted, self.pages + self._out)

    @property
    def _free(self) -> int:
        return self.granted - self.pages - self._out

    def _answer(self, *, is_given: bool) -> None:
        waiter = self._waiting.popleft()
        if not waiter.done():
            self._out += is_given
            waiter.set_result(is_given)


class RunLimits:
    """Pages, bytes and time of one run. The first two are the whole job's."""

    def __init__(
        self,
        order: LimitsSection,
        run_state: RunState,
        statistics: CrawlStatistics,
        before: UsedLimits | None,
        on_short: Callable[[], None],
    ) -> None:
        """`before`: the amounts that earlier runs have used; None if other workers crawl the job, too, whose sums `hold` gets.

        `on_short` is called when a page waits for its ticket.
        """
        self.tickets = PageTickets(on_short)
        self._order = order
        self._run_state = run_state
        self._statistics = statistics
        self._before = before
        self._began_s: float | None = None  #: by the loop's clock; None: the time does not run
        self._timer: asyncio.TimerHandle | None = None
        self._allot_pages()

    @property
    def pages(self) -> int:
        """The limit of pages that holds now; 0: none."""
        return self._order.pages

    def change(self, order: LimitsSection) -> None:
        """Hold these limits from now on. One that differs holds again if the operator has lifted it, and counts at once."""
        before, self._order = self._order, order
        other = {cause for cause, key in _KEYS.items() if getattr(before, key) != getattr(order, key)}
        if before.on_limit != order.on_limit:
            other |= {*_KEYS}
        self._run_state.lifted.difference_update(other)
        self._allot_pages()
        for cause in other:
            self._run_state.resume(cause)
        if Cause.TIME in other:
            self._set_timer()
        self.check()

    def settle(self, *, is_page: bool) -> None:
        """A visit with a ticket has ended."""
        self.tickets.settle(is_page=is_page)
        self.check()  # first, so that no visit that waits begins beyond a limit
        self.tickets.serve()

    def check(self) -> None:
        """Compare what this run and those before it have used with the limits; of several workers, `hold` does so."""
        if (used := self.used()) is not None:
            self.hold(used)

    def used(self) -> UsedLimits | None:
        """Return the amounts that this run and earlier ones have used; None if other workers crawl the job, too."""
        if self._before is None:
            return None
        pages, fetched_bytes, _ = self._before
        return UsedLimits(pages + self.tickets.pages, fetched_bytes + self._statistics.fetched_bytes)

    def hold(self, used: UsedLimits) -> None:
        """End the run or pause it if so much of a limit is used."""
        for cause, now in ((Cause.PAGES, used.pages), (Cause.BYTES, used.fetched_bytes)):
            most = getattr(self._order, _KEYS[cause])
            if most and now >= most and cause not in self._run_state.lifted:
                self.reached(cause)

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

    def reached(self, cause: Cause) -> None:
        """A limit is reached: end the run or pause it, as the order says. If the operator resumes it, the limit is lifted."""
        self.tickets.refuse()
        if self._order.on_limit == "pause":
            self._run_state.pause(cause, lift=lambda: self._lift(cause))
        else:
            self._run_state.stop(_ENDINGS[cause])

    def _lift(self, cause: Cause) -> None:
        self._run_state.lifted.add(cause)
        self._allot_pages()

    def _allot_pages(self) -> None:
        """Give tickets for the pages that the limit leaves; of several workers each gets its own from the rows."""
        most = self._order.pages
        if not most or Cause.PAGES in self._run_state.lifted:
            self.tickets.lift()
            return
        self.tickets.limit()
        if self._before is not None:
            self.tickets.grant(max(most - self._before.pages, 0))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._began_s is not None and self._order.time_s:
            # A time limit that was reached needs no lifting: its timer is over.
            loop = asyncio.get_running_loop()
            left_s = self._began_s + self._order.time_s - loop.time()
            self._timer = loop.call_later(left_s, self.reached, Cause.TIME)


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
