"""A Scrapy project without a crawl."""

from __future__ import annotations

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.request import RequestFingerprinter


class Quiet(Spider):
    """Asks for nothing."""

    name = "quiet"


def crawler(**settings: object) -> Crawler:
    """Make a crawler in the state in which Scrapy makes the scheduler's parts."""
    made = Crawler(Quiet, settings)
    made.request_fingerprinter = RequestFingerprinter()
    made.spider = Quiet.from_crawler(made)
    return made
