"""Scrapy's engine as the scheduler needs it: wakes it at a time, and finds out which requests it still works on.

The engine asks for requests after each of its events and every five seconds. The opening of a gate is no such event, so the
engine must be woken. `_slot.nextcall` and `_slot.inprogress` are private to Scrapy; only this module uses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.utils.asyncio import call_later, is_asyncio_available
from scrapy.utils.defer import deferred_from_coro

from anabranch.frontier.frontier import Frontier

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class Engine:
    """The engine of one running crawl. Belongs to the thread of its loop, except `wake_from_thread`."""

    def __init__(self, crawler: Crawler) -> None:
        self._engine: Any = crawler.engine
        self._soon: Callable[[Callable[[], None]], object]
        if is_asyncio_available():
            self._soon = asyncio.get_event_loop().call_soon_threadsafe
        else:
            from twisted.internet import reactor  # noqa: PLC0415 - installs one where there is none

            self._soon = reactor.callFromThread
        self._timer: Any = None
        self._timer_s = 0.0

    def wake(self) -> None:
        """Make it ask for requests soon."""
        slot = getattr(self._engine, "_slot", None)
        if slot is not None:
            slot.nextcall.schedule()

    def wake_from_thread(self) -> None:
        """Make the engine ask for requests soon, from any thread."""
        try:
            self._soon(self.wake)
        except RuntimeError:
            return  # the loop is closed

    def wake_at(self, frontier: Frontier) -> None:
        """Wake it when the Frontier may have a request, if that time is known. At most one timer is armed."""
        at_s = frontier.wake().at_s
        if at_s is None or (self._timer is not None and self._timer_s == at_s):
            return
        self.sleep()
        self._timer_s = at_s
        self._timer = call_later(max(at_s - frontier.now_s(), 0.0), self._on_timer)

    def sleep(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close_spider(self, reason: str) -> None:
        """End the crawl, as CloseSpider does."""
        deferred_from_coro(self._engine.close_spider_async(reason=reason))

    def is_done_with(self, request: Request) -> bool | None:
        """Whether a request's callback or errback has ended and its items are stored; None if Scrapy does not show it."""
        inprogress = getattr(getattr(self._engine, "_slot", None), "inprogress", None)
        return None if inprogress is None else request not in inprogress

    def is_under_way(self, request: Request) -> bool:
        """Whether it is in the downloader or its middlewares, or its callback or errback runs."""
        slot = getattr(getattr(self._engine, "scraper", None), "slot", None)
        return request in self._engine.downloader.active or request in getattr(slot, "active", ())

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()


def scheduler_of(crawler: Crawler) -> Any:
    """The scheduler of a running crawl, None before it has one. Scrapy 2.19 raises without an engine."""
    try:
        engine: Any = crawler.engine
    except RuntimeError:
        return None
    if hasattr(engine, "scheduler"):
        return engine.scheduler
    return getattr(getattr(engine, "_slot", None), "scheduler", None)
