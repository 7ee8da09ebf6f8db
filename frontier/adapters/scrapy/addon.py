"""Scrapy's ADDONS: the whole Frontier by one setting."""

from __future__ import annotations

from scrapy.settings import BaseSettings

from frontier.adapters.scrapy.middleware import FrontierSpiderMiddleware
from frontier.adapters.scrapy.scheduler import FrontierScheduler
from frontier.adapters.scrapy.settings import FRONTIER, frontier_settings

#: Nearest to the engine: it sees what the other spider middlewares have left.
_NEAREST = 1000


class FrontierAddon:
    """Sets the scheduler and the spider middleware, and leaves delays to the gates.

    What the project says by DOWNLOAD_DELAY and CONCURRENT_REQUESTS_PER_DOMAIN becomes the Frontier's, and the downloader waits for
    nothing: a request that waits there holds one of CONCURRENT_REQUESTS, so that a slow host stops all the others.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """As Scrapy calls it, before a crawler is made."""
        settings.set(FRONTIER, frontier_settings(settings), priority="addon")
        settings.set("SCHEDULER", FrontierScheduler, priority="addon")
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", FrontierSpiderMiddleware, _NEAREST)
        settings.set("DOWNLOAD_DELAY", 0, priority="addon")
        settings.set("CONCURRENT_REQUESTS_PER_DOMAIN", max(settings.getint("CONCURRENT_REQUESTS"), 1), priority="addon")
        settings.set("AUTOTHROTTLE_ENABLED", value=False, priority="addon")
