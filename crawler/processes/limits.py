"""The limits of a job in several processes, held by the parent: they end or pause all shares together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from anabranch.crawler.order.sections import LimitsSection
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.processes.channel import Message
from anabranch.crawler.processes.metering import FETCHED, SETTLED, TICKET, BytesLimit, PageTickets
from anabranch.crawler.processes.postoffice import VERB
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.run.crawl_verbs import PAUSE, RESUME
from anabranch.crawler.run.run_state import Cause

_ENDINGS = {
    Cause.PAGES: WhyEnded.PAGE_LIMIT,
    Cause.BYTES: WhyEnded.SIZE_LIMIT,
    Cause.TIME: WhyEnded.TIME_LIMIT,
}

_Said = TypeVar("_Said")


class JobLimits:
    """Pages, bytes and time of one run, and what pauses it."""

    def __init__(self, order: LimitsSection, shares: int, processes: Shares, notify: Callable[[str], None]) -> None:
        self._order = order
        self._shares = processes
        self._notify = notify
        self._pages = PageTickets(order.pages, shares, lambda: self._reached(Cause.PAGES)) if order.pages else None
        self._bytes = (
            BytesLimit(order.fetched_bytes, lambda: self._reached(Cause.BYTES)) if order.fetched_bytes else None
        )
        self._pauses: dict[Cause, str] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def words(self) -> str:
        """Why no fetch begins; empty if none is kept from it."""
        return "; ".join(self._pauses.values())

    def begin(self, share: int, facts: Mapping[str, Any]) -> None:
        """A share is open; it has so much already."""
        if self._pages is not None:
            self._pages.begin(share, facts["done"])
        if self._bytes is not None:
            self._bytes.begin(share, facts["bytes"])
        if self._pauses:
            self._tell(self._shares.ask(share, VERB, verb=PAUSE, arguments={}))

    async def handle(self, share: int, message: Message) -> Mapping[str, Any] | None:
        """What a share says of its pages and bytes."""
        if message.kind == TICKET and self._pages is not None:
            await self._pages.take(share)
            return {}
        if message.kind == SETTLED and self._pages is not None:
            self._pages.settle(share, is_page=message.facts["is_page"])
        elif message.kind == FETCHED and self._bytes is not None:
            self._bytes.fetched(share, message.facts)
        return None

    @contextmanager
    def clock(self) -> Iterator[None]:
        """While inside, the time runs."""
        if not self._order.time_s:
            yield
            return
        timer = asyncio.get_running_loop().call_later(self._order.time_s, self._reached, Cause.TIME)
        try:
            yield
        finally:
            timer.cancel()

    def pause(self, cause: Cause) -> None:
        """Begin no fetch in any share until the crawl goes on."""
        if cause not in self._pauses:
            self._pauses[cause] = cause.value
            self._notify(f"{cause.value}; fetches under way may end")
            self._tell(self._shares.ask_all(VERB, verb=PAUSE, arguments={}))

    async def go_on(self) -> Mapping[int, Mapping[str, Any]]:
        """The operator has the crawl go on: a limit that paused it holds no more in this run. What each share says to it."""
        if Cause.PAGES in self._pauses and self._pages is not None:
            self._pages.lift()
        if Cause.BYTES in self._pauses and self._bytes is not None:
            self._bytes.lift()
        self._pauses.clear()
        return await self._tell(self._shares.ask_all(VERB, verb=RESUME, arguments={}))

    def _reached(self, cause: Cause) -> None:
        if self._order.on_limit == "pause":
            self.pause(cause)
        else:
            self._shares.stop(_ENDINGS[cause])

    def _tell(self, saying: Coroutine[Any, Any, _Said]) -> asyncio.Task[_Said]:
        """Have it said, in the order of the calls."""
        task = asyncio.create_task(saying)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
