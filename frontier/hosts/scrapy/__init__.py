"""Scrapy (2.14 or later) crawls by the Frontier: settings name one of these.

    ADDONS = {"anabranch.frontier.hosts.scrapy.FrontierAddon": 100}        # all of it, by one setting

    SCHEDULER                 = "anabranch.frontier.hosts.scrapy.FrontierScheduler"
    SPIDER_MIDDLEWARES        = {"anabranch.frontier.hosts.scrapy.FrontierSpiderMiddleware": 10}
    DUPEFILTER_CLASS          = "anabranch.frontier.hosts.scrapy.FrontierDupeFilter"      # with Scrapy's own scheduler
    SCHEDULER_PRIORITY_QUEUE  = "anabranch.frontier.hosts.scrapy.FrontierPriorityQueue"   # the same

The way of a request. The engine gives it to the scheduler (`scheduler`). A request that is known ends there (`requests`). Any
other becomes a candidate with the serialised request as payload, and is queued (`session`). When the gate of its host
opens, the candidate is leased, and the request goes back to the engine, which is woken for it (`engine`). From then on it is
in flight, and Scrapy's signals report on it (`inflight`). The lease is finished when the callback is consumed and the items
are stored; for a request that is retried or redirected, in one transaction with the request that replaces it. `settings` reads
what a project asks for, `addon` sets all of it, `stock` is for Scrapy's own scheduler.
"""

from anabranch.frontier.hosts.scrapy.addon import FrontierAddon, FrontierSpiderMiddleware
from anabranch.frontier.hosts.scrapy.scheduler import FrontierScheduler
from anabranch.frontier.hosts.scrapy.stock import FrontierDupeFilter, FrontierPriorityQueue

__all__ = [
    "FrontierAddon",
    "FrontierDupeFilter",
    "FrontierPriorityQueue",
    "FrontierScheduler",
    "FrontierSpiderMiddleware",
]
