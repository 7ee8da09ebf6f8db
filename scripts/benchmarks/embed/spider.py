"""A Scrapy crawl in a process of its own: `python -m scripts.benchmarks.embed.spider SEED SETTINGS`, SETTINGS as JSON.

It follows all links from SEED, to the end or for CLOSESPIDER_TIMEOUT seconds, and prints as JSON how many pages came in how
many seconds since the engine started, and the CPU seconds. The spider does what a tutorial's does: one selector, one request a
link.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy import signals
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import Response


class Everything(scrapy.Spider):
    """All pages of the benchmark's site."""

    name = "everything"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.came: list[float] = []  #: when each page came

    def parse(self, response: Response, **_: Any) -> Iterator[scrapy.Request]:
        self.came.append(time.perf_counter())
        for link in response.css("a::attr(href)"):
            yield response.follow(link)


def crawled(seed: str, settings: dict[str, Any]) -> dict[str, float]:
    """Crawl. Answers `pages`, `took_s` and `cpu_s`. What comes after the time limit, when Scrapy waits for what its downloader
    still holds, is not counted.
    """
    process = AsyncCrawlerProcess(settings={"LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False} | settings)
    crawler = process.create_crawler(Everything)
    began: list[tuple[float, float]] = []
    ended: list[tuple[float, float]] = []
    crawler.signals.connect(lambda: began.append(_clocks()), signals.engine_started, weak=False)
    crawler.signals.connect(lambda: ended.append(_clocks()), signals.spider_closed, weak=False)
    process.crawl(crawler, start_urls=[seed])
    process.start()
    assert isinstance(crawler.spider, Everything)
    took_s, cpu_s = (last - first for first, last in zip(began[0], ended[0], strict=True))
    took_s = min(took_s, settings.get("CLOSESPIDER_TIMEOUT", took_s))
    return {
        "pages": sum(at_s <= began[0][0] + took_s for at_s in crawler.spider.came),
        "took_s": took_s,
        "cpu_s": cpu_s,
    }


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


if __name__ == "__main__":
    print(json.dumps(crawled(sys.argv[1], json.loads(sys.argv[2]))))
