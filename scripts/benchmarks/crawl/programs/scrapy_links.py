"""A Scrapy crawl: `python scrapy_links.py SEED CONCURRENCY LOOP KIND`, LOOP asyncio or uvloop, KIND plain or tuned.

The spider does what a tutorial's does: one selector, one request a link. plain: Scrapy as it comes, but for the concurrency.
tuned: what the task does not need and a setting can switch off is off: logs and statistics, consoles, cookies, retries,
redirects, compression, proxies, and the parts that judge requests and answers. By itself Scrapy asks for no robots.txt and has
no delay.
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
        """The seed. The filter does not see that of `start_urls`, which would be fetched again."""
        yield scrapy.Request(self.seed)

    def parse(self, response: Response, **_: Any) -> Iterator[scrapy.Request]:
        for link in response.css("a::attr(href)"):
            yield response.follow(link)


def needed(concurrency: int, loop: str) -> dict[str, Any]:
    """Settings of the task."""
    return {
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop" if loop == "uvloop" else None,
        "DNS_RESOLVER": Loopback,
        "TWISTED_DNS_RESOLVER": Loopback,
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
    }


#: Switches off everything that the task does not need, except the usual request headers.
TUNED = {
    "LOG_ENABLED": False,
    "LOGSTATS_INTERVAL": 0,
    "DOWNLOADER_STATS": False,
    "WARN_ON_GENERATOR_RETURN_VALUE": False,
    "STATS_CLASS": "scrapy.statscollectors.DummyStatsCollector",
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "HTTPCACHE_ENABLED": False,
    "REFERER_ENABLED": False,
    "METAREFRESH_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "COMPRESSION_ENABLED": False,
    "HTTPPROXY_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "MEMUSAGE_ENABLED": False,
    "EXTENSIONS": dict.fromkeys(("scrapy.extensions.corestats.CoreStats", "scrapy.extensions.logcount.LogCount")),
    "DOWNLOADER_MIDDLEWARES": dict.fromkeys(
        f"scrapy.downloadermiddlewares.{name}"
        for name in (
            "offsite.OffsiteMiddleware",
            "httpauth.HttpAuthMiddleware",
            "downloadtimeout.DownloadTimeoutMiddleware",
        )
    ),
    "SPIDER_MIDDLEWARES": dict.fromkeys(
        f"scrapy.spidermiddlewares.{name}"
        for name in (
            "start.StartSpiderMiddleware",
            "httperror.HttpErrorMiddleware",
            "urllength.UrlLengthMiddleware",
            "depth.DepthMiddleware",
            "metacopy.MetaCopyDetectionMiddleware",
        )
    ),
}


if __name__ == "__main__":
    _, seed, concurrency, loop, kind = sys.argv
    process = AsyncCrawlerProcess(settings=needed(int(concurrency), loop) | {"plain": {}, "tuned": TUNED}[kind])
    process.crawl(Everything, seed=seed)
    process.start()
