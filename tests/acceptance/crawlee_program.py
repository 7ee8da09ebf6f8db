"""A crawler of Crawlee's in a process of its own; tests start it, kill it, and start it again.

    python crawlee_program.py '{"start": [URL, …], "folder": …, "settings": {…}, …}'

prints a JSON line for every page whose handler runs, and one at the end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from crawlee import ConcurrencySettings, Request
from crawlee.configuration import Configuration
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.http_clients import HttpxHttpClient
from crawlee.storages import RequestQueue

from anabranch.frontier.hosts.crawlee import FrontierRequestManager, FrontierStorageClient


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


async def manager_of(task: dict[str, Any]) -> tuple[Any, Any]:
    """Return the crawler's source of requests, and the object that is closed at the end."""
    settings = task["settings"]
    if "storage" in task:
        storage = FrontierStorageClient(**settings)
        configuration = Configuration(storage_dir=task["storage"], purge_on_start=task.get("purge", False))
        opened = {"storage_client": storage, "configuration": configuration}
        return await RequestQueue.open(name=task.get("name"), **opened), storage
    folder = None if task["folder"] is None else Path(task["folder"])
    stall = timedelta(seconds=task.get("stall_s", 900))
    manager = await FrontierRequestManager.open(folder, max_domain_stall=stall, **settings)
    return manager, manager


async def main(task: dict[str, Any]) -> None:
    manager, owner = await manager_of(task)
    concurrency = ConcurrencySettings(
        min_concurrency=task.get("workers", 20), desired_concurrency=task.get("workers", 20)
    )
    crawler = HttpCrawler(
        request_manager=manager,
        http_client=HttpxHttpClient(),
        configure_logging=False,
        concurrency_settings=concurrency,
        max_request_retries=task.get("retries", 3),
        max_requests_per_crawl=task.get("most"),
        respect_robots_txt_file=task.get("robots", False),
        use_session_pool=False,
    )

    @crawler.router.default_handler
    async def handle(context: HttpCrawlingContext) -> None:
        url = context.request.url
        page = (await context.http_response.read()).decode(errors="replace")
        say(page=url, retries=context.request.retry_count)
        if url.endswith(tuple(task.get("failing", ["\n"]))):
            raise ValueError("this page cannot be handled")
        links = {urljoin(url, link) for link in re.findall(r'href="([^"]*)"', page)}
        known = [
            link
            for link in sorted(links)
            if urlsplit(link).scheme == "http" and urlsplit(link).port == urlsplit(url).port
        ]
        await context.add_requests([Request.from_url(link, user_data={"via": url}) for link in known])

    try:
        ended = await crawler.run(task["start"])
        say(finished=ended.requests_finished, failed=ended.requests_failed, total=await manager.get_total_count())
    finally:
        if task.get("close", True):
            await owner.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(json.loads(sys.argv[1])))
