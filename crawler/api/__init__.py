"""Crawls in a Python program: `anabranch.crawl` hands over pages as they come, `anabranch.run` crawls to the end.

`keywords` makes an order of what a program gives, `crawling` starts the crawl and ends it, `pages` has the pages that wait for
the program. A page is done, its links included, when the program asks for the next one: so a kill repeats pages and skips none.
"""

from anabranch.crawler.api.crawling import Crawl, CrawlResult, crawl, run
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
    "NoSeeds",
    "OrderError",
    "Page",
    "PageHead",
    "PageProcessor",
    "Response",
    "ScopeRule",
    "Step",
    "StorageError",
    "Target",
    "UrlRule",
    "UsageError",
    "Visit",
    "WarcRef",
    "crawl",
    "run",
]
