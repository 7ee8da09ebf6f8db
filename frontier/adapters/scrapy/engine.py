"""What the scheduler asks of Scrapy's engine: to come back at a time, and what it still works on.

The engine asks for requests when something happens and every five seconds besides. A gate that opens is nothing that happens
to it, so it is woken then. What does that (`_slot.nextcall`), and what is in progress (`_slot.inprogress`), Scrapy keeps to
itself; so both are asked for here alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.utils.asyncio import call_later, is_asyncio_available
from scrapy.utils.defer import deferred_from_coro

from anabranch.frontier.core import Frontier

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class Engine:
    """The engine of one running crawl. Belongs to the thread of its loop, but for `wake_from_thread`."""

    def __init__(self, crawler: Crawler) -> None:
        self._engine: Any = crawler.engine
        self._soon: Callable[[Callable[[], None]], object] = _soon_from_thread()
        self._timer: Any = None
        self._timer_s = 0.0

    def wake(self) -> None:
        """Let it ask for requests soon."""
        slot = getattr(self._engine, "_slot", None)
        if slot is not None:
            slot.nextcall.schedule()

    def wake_from_thread(self) -> None:
        """The same, from any thread."""
        try:
            self._soon(self.wake)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def wake_at(self, frontier: Frontier) -> None:
        """Let it ask again when the Frontier may have a request, if a time will help. One timer is armed at most."""
        at_s = frontier.wake().at_s
        if at_s is None or (self._timer is not None and self._timer_s == at_s):
            return
        self.sleep()
        self._timer_s = at_s
        self._timer = call_later(max(at_s - frontier.now_s(), 0.0), self._rung)

    def sleep(self) -> None:
        """Do not wake it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close_spider(self, reason: str) -> None:
        """End the crawl, as CloseSpider does."""
        deferred_from_coro(self._engine.close_spider_async(reason=reason))

    def is_done_with(self, request: Request) -> bool | None:
        """Whether a request's callback or errback has come to its end, with its items stored; None if that is not told."""
        inprogress = getattr(getattr(self._engine, "_slot", None), "inprogress", None)
        return None if inprogress is None else request not in inprogress

    def is_under_way(self, request: Request) -> bool:
        """Whether it is in the downloader, its middlewares included, or its callback or its errback runs."""
        slot = getattr(getattr(self._engine, "scraper", None), "slot", None)
        return request in self._engine.downloader.active or request in getattr(slot, "active", ())

    def _rung(self) -> None:
        self._timer = None
        self.wake()


def scheduler_of(crawler: Crawler) -> Any:
    """The scheduler of a running crawl; None before it has one. Scrapy tells it since 2.19, and raises without an engine."""
    try:
        engine: Any = crawler.engine
    except RuntimeError:
        return None
    if hasattr(engine, "scheduler"):
        return engine.scheduler
    return getattr(getattr(engine, "_slot", None), "scheduler", None)


def _soon_from_thread() -> Callable[[Callable[[], None]], object]:
    """How another thread has something done in the engine's."""
    if is_asyncio_available():
        return asyncio.get_event_loop().call_soon_threadsafe
    from twisted.internet import reactor  # noqa: PLC0415 - installs one where there is none

    call: Callable[[Callable[[], None]], object] = reactor.callFromThread
    return call
