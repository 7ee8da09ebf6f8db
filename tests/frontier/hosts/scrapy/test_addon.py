"""FrontierSpiderMiddleware outside a crawl of ours."""

from __future__ import annotations

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response

from anabranch.frontier.hosts.scrapy import FrontierSpiderMiddleware


def test_the_middleware_lets_all_pass_where_no_engine_runs() -> None:
    """Scrapy's contracts and its `parse` command ask a spider's middlewares before there is a scheduler."""
    middleware = FrontierSpiderMiddleware.from_crawler(Crawler(Spider))
    request = Request("http://example.com/")
    response = Response(request.url, request=request)
    found = [Request("http://example.com/2"), {"an": "item"}]
    assert list(middleware.process_spider_output(response, found)) == found
    middleware.process_spider_exception(response, ValueError())
