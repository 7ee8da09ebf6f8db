"""A pytest plugin for Scrapy's suite: replaces the class under test by ours. `ANABRANCH_SUITE` names it.

scrapy-scheduler      every crawl that names no scheduler, and what a test imports as `Scheduler`
scrapy-dupefilter     every crawl that names no dupe filter
scrapy-pqueue         every crawl that names no priority queue, and what a test imports as one
"""

from __future__ import annotations

import os
from types import ModuleType

import pytest
from scrapy import pqueues
from scrapy.core import scheduler
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

from anabranch.frontier.hosts.scrapy import FrontierPriorityQueue, FrontierScheduler
from scripts.hosts.selection import SUITE

_SUITE = os.environ[SUITE].split(" ")[0]
_OURS = "anabranch.frontier.hosts.scrapy"
#: Priorities apply within one work queue; hosts of tests fail on purpose, and are retried at once.
_FRONTIER = {"policy": "host", "per_queue": 100, "backoff_base": 0, "backoff_cap": 0, "max_retry_after": 0}


def _set_defaults() -> None:
    """Default settings of a project."""
    defaults: ModuleType = default_settings
    # Any: a port that another process holds is a warning, which some tests count.
    vars(defaults).update(TELNETCONSOLE_PORT=[])
    if _SUITE == "scrapy-scheduler":
        middlewares = {**defaults.SPIDER_MIDDLEWARES_BASE, f"{_OURS}.FrontierSpiderMiddleware": 10}
        vars(defaults).update(
            SCHEDULER=f"{_OURS}.FrontierScheduler", SPIDER_MIDDLEWARES_BASE=middlewares, FRONTIER=_FRONTIER
        )
    elif _SUITE == "scrapy-dupefilter":
        vars(defaults).update(DUPEFILTER_CLASS=f"{_OURS}.FrontierDupeFilter")
    else:
        # Scrapy's order is that of one work queue, and its tests ask one host.
        vars(defaults).update(SCHEDULER_PRIORITY_QUEUE=f"{_OURS}.FrontierPriorityQueue", FRONTIER={"policy": "host"})


def _swaps() -> dict[object, object]:
    if _SUITE == "scrapy-scheduler":
        return {scheduler.Scheduler: FrontierScheduler}
    if _SUITE == "scrapy-pqueue":
        stock = (pqueues.ScrapyPriorityQueue, pqueues.DownloaderAwarePriorityQueue)
        return dict.fromkeys(stock, FrontierPriorityQueue)
    return {}


def _complete(module: ModuleType) -> None:
    """Complete the crawler of the scheduler tests, which lacks parts of a real one."""
    crawler = vars(module).get("MockCrawler")
    if crawler is None or hasattr(crawler, "anabranch"):
        return
    made = crawler.__init__

    def completed(self: object, *arguments: object) -> None:
        made(self, *arguments)
        kind = load_object(self.settings["REQUEST_FINGERPRINTER_CLASS"])  # type: ignore[attr-defined]
        self.request_fingerprinter = kind(self)  # type: ignore[attr-defined]
        if hasattr(self.engine, "_slot"):  # type: ignore[attr-defined]  # a Mock, which has everything; in 2.14 a tuple
            self.engine._slot.inprogress = set()  # type: ignore[attr-defined]  # noqa: SLF001
            self.engine.scraper.slot.active = set()  # type: ignore[attr-defined]

    crawler.__init__, crawler.anabranch = completed, True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Replace names that the test modules have imported."""
    swaps = _swaps()
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in swaps:
                setattr(module, name, swaps[value])
        if _SUITE == "scrapy-scheduler":
            _complete(module)


_set_defaults()
