"""A Crawlee crawl: `python crawlee_links.py SEED CONCURRENCY LOOP KIND`, LOOP asyncio or uvloop, KIND plain, tuned or parsel.

plain and tuned: HttpCrawler; its handler reads the links by selectolax, as the bare loop does, and gives them to
`add_requests`. parsel: ParselCrawler; its handler calls `enqueue_links()`. plain has Crawlee's defaults except the concurrency:
its storage is files in the folder CRAWLEE_STORAGE_DIR. The others switch off everything that the task does not need: storage is
in memory, without sessions, retries and logs. Crawlee requests no robots.txt by default.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

from crawlee import ConcurrencySettings
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext, ParselCrawler, ParselCrawlingContext
from crawlee.http_clients import HttpxHttpClient, ImpitHttpClient
from crawlee.statistics import Statistics
from crawlee.storage_clients import MemoryStorageClient
from selectolax.lexbor import LexborHTMLParser


def needed(concurrency: int, seed: str) -> dict[str, Any]:
    """Return the settings that the task needs of each crawler. Crawlee's own HTTP client is written in Rust and resolves names
    by the system, so names that only this process knows need the other client.
    """
    return {
        "http_client": HttpxHttpClient(http2=False) if ".bench.test" in seed else ImpitHttpClient(),
        "concurrency_settings": ConcurrencySettings(
            min_concurrency=concurrency, desired_concurrency=concurrency, max_concurrency=concurrency
        ),
    }


def tuned() -> dict[str, Any]:
    """Settings that switch off everything that the task does not need."""
    logging.disable(logging.CRITICAL)
    return {
        "storage_client": MemoryStorageClient(),
        "use_session_pool": False,
        "max_request_retries": 0,
        "retry_on_blocked": False,
        "configure_logging": False,
        "statistics_log_format": "inline",
        "statistics": Statistics.with_default_state(log_interval=timedelta(hours=1)),
    }


def http_crawler(asked: dict[str, Any]) -> HttpCrawler:
    crawler = HttpCrawler(**asked)

    @crawler.router.default_handler
    async def handle(context: HttpCrawlingContext) -> None:
        links = LexborHTMLParser(await context.http_response.read()).css("a[href]")
        await context.add_requests([target for link in links if (target := link.attributes["href"])])

    return crawler


def parsel_crawler(asked: dict[str, Any]) -> ParselCrawler:
    crawler = ParselCrawler(**asked)

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(strategy="all")

    return crawler


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops of this kind that resolve the benchmark's names to 127.0.0.1. (uvloop resolves in C.)"""
    new_event_loop = import_module(name).new_event_loop

    def made() -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = new_event_loop()
        ask = loop.getaddrinfo

        async def answer(host: Any, *others: Any, **named: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host
            return await ask("127.0.0.1" if name and name.endswith(".bench.test") else host, *others, **named)

        loop.getaddrinfo = answer  # type: ignore[method-assign]
        return loop

    return made


async def crawl(seed: str, concurrency: int, kind: str) -> None:
    make = {"plain": http_crawler, "tuned": http_crawler, "parsel": parsel_crawler}[kind]
    more = {} if kind == "plain" else tuned()
    await make(needed(concurrency, seed) | more).run([seed])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[3])) as runner:
        runner.run(crawl(sys.argv[1], int(sys.argv[2]), sys.argv[4]))
