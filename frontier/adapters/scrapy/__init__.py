"""Scrapy (2.14 or later) crawls by the Frontier: settings name one of these.

    ADDONS = {"anabranch.frontier.adapters.scrapy.FrontierAddon": 100}        # all of it, by one setting

    SCHEDULER                 = "anabranch.frontier.adapters.scrapy.FrontierScheduler"
    SPIDER_MIDDLEWARES        = {"anabranch.frontier.adapters.scrapy.FrontierSpiderMiddleware": 10}
    DUPEFILTER_CLASS          = "anabranch.frontier.adapters.scrapy.FrontierDupeFilter"      # with Scrapy's own scheduler
    SCHEDULER_PRIORITY_QUEUE  = "anabranch.frontier.adapters.scrapy.FrontierPriorityQueue"   # the same

The story of a request. The engine gives it to the scheduler (`scheduler`); if it is known (`known`) that is its end, else a
candidate is made of it (`requests`), its payload the serialised request, and queued (`exchange`). When the gate of its host
lets it through it is leased and goes back to the engine, which is woken for it (`engine`); from then on it is in flight
(`inflight`), and Scrapy's signals tell what becomes of it (`signals`). When its callback is consumed and its items are stored
the lease is finished; when it is retried or redirected, in one transaction with the request that takes its place. `run` is
all of it for one crawl, `settings` what a project asks for, `addon` how it asks by one setting.
"""

from anabranch.frontier.adapters.scrapy.addon import FrontierAddon
from anabranch.frontier.adapters.scrapy.dupefilter import FrontierDupeFilter
from anabranch.frontier.adapters.scrapy.middleware import FrontierSpiderMiddleware
from anabranch.frontier.adapters.scrapy.priorityqueue import FrontierPriorityQueue
from anabranch.frontier.adapters.scrapy.scheduler import FrontierScheduler

__all__ = [
    "FrontierAddon",
    "FrontierDupeFilter",
    "FrontierPriorityQueue",
    "FrontierScheduler",
    "FrontierSpiderMiddleware",
]
