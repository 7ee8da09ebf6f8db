"""Scrapy's ADDONS: the whole Frontier by one setting."""

from __future__ import annotations

from typing import Any

from scrapy.exceptions import NotConfigured
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, default_settings
from scrapy.utils.misc import load_object

from anabranch.frontier.adapters.scrapy.middleware import FrontierSpiderMiddleware
from anabranch.frontier.adapters.scrapy.scheduler import FrontierScheduler
from anabranch.frontier.adapters.scrapy.settings import FRONTIER, SLOTS, frontier_settings
from anabranch.frontier.errors import PolicyError

#: Nearest to the engine: it sees what the other spider middlewares have left.
_NEAREST = 10
_ADDON = "addon"
#: A delay of the downloader's that varies would go on when the gate's is over.
_STEADY = {"jitter": 0} if hasattr(default_settings, "DOWNLOAD_DELAY_JITTER") else {"randomize_delay": False}  # 2.19
#: Connections to a host for who sets no limit to all of them.
_ALL = 1_000_000


class FrontierAddon:
    """Sets the scheduler and the spider middleware, and leaves delays to the gates.

    What the project says by DOWNLOAD_DELAY and CONCURRENT_REQUESTS_PER_DOMAIN becomes the Frontier's, and the downloader
    waits for nothing: a request that waits there holds one of CONCURRENT_REQUESTS, so that a slow host stops all the others.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """As Scrapy calls it, before a crawler is made. Raises: NotConfigured if the project has chosen another scheduler."""
        settings.set("SCHEDULER", FrontierScheduler, priority=_ADDON)
        if load_object(settings["SCHEDULER"]) is not FrontierScheduler:
            raise NotConfigured(f"SCHEDULER is {settings['SCHEDULER']}; leave it out, or leave FrontierAddon out")
        try:
            _overrule(settings, FRONTIER, frontier_settings(settings))
        except PolicyError:
            return  # the scheduler says so, and closes the spider
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", FrontierSpiderMiddleware, _NEAREST)
        _overrule(settings, "DOWNLOAD_DELAY", 0)
        _overrule(settings, "CONCURRENT_REQUESTS_PER_DOMAIN", settings.getint("CONCURRENT_REQUESTS") or _ALL)
        _overrule(settings, "AUTOTHROTTLE_ENABLED", value=False)
        if slots := settings.getdict(SLOTS):
            _overrule(settings, SLOTS, {name: {**slot, **_STEADY} for name, slot in slots.items()})


def _overrule(settings: BaseSettings, name: str, value: Any) -> None:
    """Set what the project may have said, too: it has become the Frontier's."""
    settings.set(name, value, priority=max(settings.getpriority(name) or 0, SETTINGS_PRIORITIES[_ADDON]))
