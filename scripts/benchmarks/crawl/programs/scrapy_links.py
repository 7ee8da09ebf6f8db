"""A Scrapy crawl: `python scrapy_links.py SEED CONCURRENCY LOOP`, LOOP asyncio or uvloop.

The spider does what a tutorial's does: one selector, one request a link. What the task does not need is off: logs, cookies,
retries, robots.txt, Referer, the console, the extensions that look at memory and print statistics.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import Response
from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer


class Loopback(CachingThreadedResolver):
    """The benchmark's names are 127.0.0.1."""

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> Any:  # noqa: N802 - Twisted's name
        if name.endswith(".bench.test"):
            return defer.succeed("127.0.0.1")
        return super().getHostByName(name, timeout)


class Everything(scrapy.Spider):
    """All pages of the benchmark's site."""

    name = "everything"

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """The seed. That of `start_urls` would not be known to the filter, and be fetched again."""
        yield scrapy.Request(self.seed)

    def parse(self, response: Response, **_: Any) -> Iterator[scrapy.Request]:
        for link in response.css("a::attr(href)"):
            yield response.follow(link)


def settings(concurrency: int, loop: str) -> dict[str, Any]:
    """The fastest that the task allows."""
    return {
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop" if loop == "uvloop" else None,
        "DNS_RESOLVER": Loopback,
        "TWISTED_DNS_RESOLVER": Loopback,
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "DOWNLOAD_DELAY": 0,
        "LOG_ENABLED": False,
        "LOGSTATS_INTERVAL": 0,
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "HTTPCACHE_ENABLED": False,
        "REFERER_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "MEMUSAGE_ENABLED": False,
    }


if __name__ == "__main__":
    process = AsyncCrawlerProcess(settings=settings(int(sys.argv[2]), sys.argv[3]))
    process.crawl(Everything, seed=sys.argv[1])
    process.start()
