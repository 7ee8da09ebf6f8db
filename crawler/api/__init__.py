"""Crawls in a Python program: `anabranch.crawl` yields pages as they are fetched, `anabranch.run` crawls to the end.

`keywords` turns the program's arguments into an order, `crawling` starts and ends the crawl, and `pages` holds the pages that
wait for the program. A page and its links are done when the program asks for the next page, so a kill may repeat pages but
skips none.
"""

from anabranch.crawler.api.crawling import Crawl, CrawlResult, NoSeedAnswered, crawl, create, run
from anabranch.crawler.api.pages import Page, WarcRef
from anabranch.crawler.extract.links import Link
from anabranch.crawler.fetch.response import BodyRule, PageHead, Response
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import (
    CrawlerError,
    DiskFull,
    JobInUse,
    NoSeeds,
    OrderError,
    StorageError,
    UsageError,
)
from anabranch.crawler.outcomes.failures import ServiceAway
from anabranch.crawler.run.sinks import PageSink
from anabranch.crawler.scope.rules import ScopeRule, Target
from anabranch.crawler.urls.canonicalization import UrlRule
from anabranch.crawler.visit import PageProcessor, Step, Visit

__all__ = [
    "BodyRule",
    "Crawl",
    "CrawlOrder",
    "CrawlResult",
    "CrawlerError",
    "DiskFull",
    "JobInUse",
    "Link",
    "NoSeedAnswered",
    "NoSeeds",
    "OrderError",
    "Page",
    "PageHead",
    "PageProcessor",
    "PageSink",
    "Response",
    "ScopeRule",
    "ServiceAway",
    "Step",
    "StorageError",
    "Target",
    "UrlRule",
    "UsageError",
    "Visit",
    "WarcRef",
    "crawl",
    "create",
    "run",
]
