"""A Frontier in a host program, in its own folder or in memory: `EmbeddedJob`, and `open_job` for programs with asyncio.

`settings` makes the order, `hostfolder` locks the folder, and `leaseboard` shows other processes which URLs are leased.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.composition import open_frontier, wake_nobody
from anabranch.frontier.filterchoice import loss_warning
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.embedding.hostfolder import HostFolder
from anabranch.frontier.hosts.embedding.leaseboard import LeaseBoard
from anabranch.frontier.hosts.embedding.settings import order_of, order_text
from anabranch.frontier.jobfolder import has_store
from anabranch.frontier.times import Clock

logger = logging.getLogger(__name__)


class EmbeddedJob:
    """An open Frontier, and its locked folder.

    `anabranch frontier ls FOLDER` and `anabranch why FOLDER URL` can read the folder, also while the job is open here.
    `on_change` is called from the store's thread and may only wake the host program. `max_unacknowledged` ends of leases may be
    lost with the process: give the number of URLs that the host program works on at once. Opening blocks. Raises: PolicyError,
    FormatMismatch (also for the folder of another job), StoreInUse, StoreUnavailable.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: Mapping[str, object],
        *,
        on_change: Callable[[], None] = wake_nobody,
        clock: Clock | None = None,
        max_unacknowledged: int | None = None,
    ) -> None:
        order = order_of(settings)
        if max_unacknowledged is not None:
            order = replace(order, max_unacknowledged=max_unacknowledged)
        self.folder = folder
        self._text = order_text(settings)
        self._uniq = order.uniq
        self._open = partial(open_frontier, order=order, on_change=on_change, clock=clock)
        self._place = None if folder is None else HostFolder(folder)
        self._board: LeaseBoard | None = None
        try:
            self.frontier: Frontier = self._opened()
        except BaseException:
            if self._place is not None:
                self._place.fail()
            raise

    def empty(self) -> None:
        """Remove all URLs and start over; the folder stays locked (blocks). Raises: StoreUnavailable."""
        self._close()
        if self._place is not None:
            self._place.forget()
        self.frontier = self._opened()

    def remove(self) -> None:
        """Close it and remove what it wrote, and the folder if it is empty then (blocks). Raises: StoreUnavailable."""
        try:
            self._close()
            if self._place is not None:
                self._place.remove()
        finally:
            self._let_go()

    def close(self) -> None:
        """Write all, close the Frontier, release the folder (blocks). Idempotent."""
        try:
            self._close()
        finally:
            self._let_go()

    def _opened(self) -> Frontier:
        place = self._place
        if place is None:
            return self._open(None)
        with suppress(OSError):  # left by a run that was killed
            place.leases.unlink()
        if not has_store(place.state):
            # A filter without rows, left by an end in the middle of `empty`, would refuse what it has seen.
            place.forget()
        with ExitStack() as opened:  # lets go of what was opened if something fails
            self._board = opened.enter_context(closing(LeaseBoard(place.leases)))
            frontier = opened.enter_context(self._open(place.state, board=self._board))
            place.describe(self._text)
            opened.pop_all()
        if warning := loss_warning(self._uniq):
            logger.warning("%s", warning)
        if frontier.filter_renewed:
            logger.warning("the filter was made anew from the store: %s", frontier.filter_renewed)
        return frontier

    def _close(self) -> None:
        try:
            self.frontier.close()
        finally:
            if self._board is not None:
                self._board.close()

    def _let_go(self) -> None:
        if self._place is not None:
            self._place.let_go()


@asynccontextmanager
async def open_job(
    folder: Path | None, settings: Mapping[str, object], *, max_unacknowledged: int | None = None
) -> AsyncIterator[AsyncFrontier]:
    """The job's Frontier, closed at the end of the block; opening and closing happen off the event loop.

    `folder`, `settings` and `max_unacknowledged` are those of `EmbeddedJob`. Raises: PolicyError, FormatMismatch, StoreInUse,
    StoreUnavailable.
    """
    jobs: list[EmbeddedJob] = []

    def opened(on_change: Callable[[], None]) -> Frontier:
        jobs.append(EmbeddedJob(folder, settings, on_change=on_change, max_unacknowledged=max_unacknowledged))
        return jobs[0].frontier

    try:
        async with AsyncFrontier(opened) as frontier:
            yield frontier
    finally:
        for job in jobs:
            await asyncio.to_thread(job.close)
