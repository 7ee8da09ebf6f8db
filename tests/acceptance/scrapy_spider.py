"""A Scrapy crawl in a process of its own: `python scrapy_spider.py ORDER` with a JSON object that says what is wanted.

It prints a line for each call of a callback or an errback, and one for each item, when it has happened; at last the crawl's
stats.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from aiohttp import ThreadedResolver, connector
from scrapy.crawler import AsyncCrawlerProcess, Crawler, CrawlerProcess
from scrapy.exceptions import CloseSpider, DontCloseSpider, IgnoreRequest
from scrapy.http import HtmlResponse, Response

_look_up = socket.getaddrinfo


def said(*words: object) -> None:
    """In the hands of the system when it returns: a kill loses nothing of it."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Everything(scrapy.Spider):
    """Follows all links of a site."""

    name = "everything"

    def __init__(self, starts: list[str], **options: Any) -> None:
        super().__init__()
        self.starts, self.options = starts, options
        self.allow = options.get("allow", "http://")

    async def start(self) -> AsyncIterator[Any]:
        for url in self.starts:
            yield scrapy.Request(url, errback=self.failed)

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        for link in response.css("a::attr(href)") if isinstance(response, HtmlResponse) else ():
            if (request := response.follow(link, errback=self.failed)).url.startswith(self.allow):
                yield request
        said("CALLED", response.url, response.status)

    def failed(self, failure: Any) -> None:
        said("FAILED", failure.request.url, failure.type.__name__)


class Asynchronous(Everything):
    """Does what `Everything` does, in async callbacks."""

    name = "asynchronous"

    async def parse(self, response: Response) -> AsyncIterator[Any]:  # type: ignore[override]
        await asyncio.sleep(0)
        for each in super().parse(response):
            yield each


class Lambdas(Everything):
    """Requests that cannot be serialised."""

    name = "lambdas"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        for each in super().parse(response):
            yield each.replace(callback=lambda answer: self.parse(answer))  # noqa: PLW0108 - a name it must not have


class Priorities(Everything):
    """Requests with the priorities of their pages' names, start requests with none."""

    name = "priorities"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        for each in super().parse(response):
            yield each.replace(priority=int(each.url.rpartition("/")[2] or 0))


class Repeating(Everything):
    """Asks for one page again and again, three times by a copy of its request and then by the request itself."""

    name = "repeating"

    def parse(self, response: Response, **options: Any) -> Iterator[Any]:
        turn = response.meta.get("turn", 0)
        said("CALLED", response.url, response.status)
        request = response.request
        assert request is not None
        if turn < 3:
            yield request.replace(dont_filter=True, meta={**request.meta, "turn": turn + 1})
        elif turn == 3:
            request.meta["turn"] = 4
            request.dont_filter = True  # type: ignore[misc]
            yield request


class Recovering(Everything):
    """An errback asks for two other pages."""

    name = "recovering"

    def failed(self, failure: Any) -> Iterator[Any]:  # type: ignore[override]
        super().failed(failure)
        yield failure.request.replace(url=failure.request.url + "?again", errback=None)
        yield scrapy.Request(failure.request.url + "?other")


class Closing(Everything):
    """Closes itself in the callback of the page `until`, in the first run only."""

    name = "closing"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        yield from super().parse(response)
        if response.url == self.options["until"]:
            raise CloseSpider("enough")


class Older(Closing):
    """Has a callback that its other versions do not have."""

    name = "older"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        for each in super().parse(response):
            yield each.replace(callback=self.old) if each.url.endswith("/old") else each

    def old(self, response: Response) -> None:
        said("CALLED", response.url, response.status)


class Raising(Everything):
    """Each callback fails after its links."""

    name = "raising"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        yield from super().parse(response)
        raise ValueError("no")


class Patient(Everything):
    """When it is idle, it asks for two more pages, one at a time."""

    name = "patient"

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **options: Any) -> Patient:
        spider = super().from_crawler(crawler, *args, **options)
        spider.more = [f"{spider.starts[0]}?more=1", f"{spider.starts[0]}?more=2"]  # type: ignore[attr-defined]
        crawler.signals.connect(spider.idle, signal=scrapy.signals.spider_idle)
        return spider

    def idle(self) -> None:
        if self.more:  # type: ignore[attr-defined]
            assert self.crawler.engine is not None
            self.crawler.engine.crawl(scrapy.Request(self.more.pop()))  # type: ignore[attr-defined]
            raise DontCloseSpider


class Items(Everything):
    """Each page is an item."""

    name = "items"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        yield {"url": response.url}
        yield from super().parse(response)


class SlowPipeline:
    """Takes its time with each item."""

    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(0.05)
        said("ITEM", item["url"])
        return item


class Middleware:
    """Answers some requests itself, and ignores others."""

    def process_request(self, request: scrapy.Request) -> Response | None:
        if request.url.endswith("/made"):
            return HtmlResponse(request.url, body=b"made", encoding="utf-8", request=request)
        if request.url.endswith("/ignored"):
            raise IgnoreRequest("not this one")
        return None


class Beside:
    """Asks for a second page beside each, with the same meta, before the first is fetched."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Beside:
        return cls(crawler)

    def process_request(self, request: scrapy.Request) -> None:
        if "?" not in request.url:
            assert self.crawler.engine is not None
            self.crawler.engine.crawl(scrapy.Request(request.url + "?beside", meta=request.meta))


def main(order: dict[str, Any]) -> None:
    """Crawl."""

    def addresses(host: Any, *more: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host or ""
        return _look_up("127.0.0.1" if name.endswith(".test") else host, *more, **named)

    socket.getaddrinfo = addresses  # type: ignore[assignment]
    connector.DefaultResolver = ThreadedResolver  # type: ignore[misc] - aiodns would ask a name server
    socket.gethostbyname = lambda host: "127.0.0.1" if host.endswith(".test") else host
    settings = {"TELNETCONSOLE_ENABLED": False, "LOG_LEVEL": "INFO", "LOGSTATS_INTERVAL": 0, **order["settings"]}
    process = CrawlerProcess(settings) if "TWISTED_REACTOR" in settings else AsyncCrawlerProcess(settings)
    (spider,) = (kind for kind in _kinds(Everything) if kind.name == order.get("spider", "everything"))
    crawler = process.create_crawler(spider)
    process.crawl(crawler, order["starts"], **order.get("options", {}))
    process.start()
    assert crawler.stats is not None
    said("STATS", json.dumps(crawler.stats.get_stats(), default=str))


def _kinds(kind: type[Everything]) -> Iterator[type[Everything]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
