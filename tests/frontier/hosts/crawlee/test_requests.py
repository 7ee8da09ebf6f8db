"""Requests in progress in an aborted run come again in the next: with crawlers and pools of Crawlee's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("crawlee")

from crawlee import ConcurrencySettings
from crawlee.configuration import Configuration
from crawlee.storage_clients import MemoryStorageClient

from anabranch.frontier.hosts.crawlee import FrontierRequestManager
from anabranch.frontier.hosts.crawlee.requests import current_run, is_run_over, pool_run

if TYPE_CHECKING:
    from crawlee.crawlers import BasicCrawler, BasicCrawlingContext

FAST: dict[str, Any] = {"policy": "host", "min_delay": 0, "max_connections": 100, "per_queue": 100}
URLS = [f"http://a.test/{number}" for number in range(8)]
Handler = Callable[[Any], Awaitable[None]]


@pytest.fixture(params=["memory", "folder"])
async def manager(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FrontierRequestManager]:
    folder = None if request.param == "memory" else tmp_path / "job"
    async with await FrontierRequestManager.open(folder, **FAST) as opened:
        yield opened


def a_crawler(manager: FrontierRequestManager, handle: Handler, workers: int = 3) -> BasicCrawler:
    from crawlee.crawlers import BasicCrawler  # 0.7 s, which every test process would pay at the top

    crawler = BasicCrawler(
        request_manager=manager,
        configuration=Configuration(),
        storage_client=MemoryStorageClient(),
        configure_logging=False,
        use_session_pool=False,
        concurrency_settings=ConcurrencySettings(
            min_concurrency=workers, desired_concurrency=workers, max_concurrency=workers
        ),
    )
    crawler.router.default_handler(handle)
    return crawler


async def test_a_run_that_failed_is_followed_by_one_that_misses_nothing(
    manager: FrontierRequestManager, caplog: pytest.LogCaptureFixture
) -> None:
    """The request at which it failed comes once more, the others that were handled do not."""
    seen: Counter[str] = Counter()

    async def handle(context: BasicCrawlingContext) -> None:
        seen[context.request.url] += 1
        if seen.total() == 3:
            raise ValueError("this page cannot be handled")

    crawler = a_crawler(manager, handle)

    @crawler.error_handler
    async def fail(context: BasicCrawlingContext, error: Exception) -> None:
        raise RuntimeError("nor can its error")

    with pytest.raises(Exception, match="user-defined request error handler"):
        await crawler.run(URLS)
    assert manager.queue.handled < len(URLS)
    await crawler.run()
    assert sorted(seen) == URLS
    assert sorted(seen.values())[-2:] == [1, 2]
    assert (await manager.get_handled_count(), await manager.is_finished()) == (len(URLS), True)
    assert "1 requests were in progress when a run ended; they are queued again" in caplog.messages


async def test_another_crawler_goes_on_with_what_an_aborted_one_had(manager: FrontierRequestManager) -> None:
    """The workers of the first one are cancelled, as at a second Ctrl-C."""
    begun, never = asyncio.Event(), asyncio.Event()

    async def hang(context: BasicCrawlingContext) -> None:
        begun.set()
        await never.wait()

    aborted = a_crawler(manager, hang, workers=1)
    running = asyncio.create_task(aborted.run(URLS))
    await begun.wait()
    for worker in asyncio.all_tasks():
        if worker.get_name().startswith("autoscaled pool worker task"):
            worker.cancel()
    running.cancel()
    await asyncio.wait([running])
    seen: Counter[str] = Counter()

    async def handle(context: BasicCrawlingContext) -> None:
        seen[context.request.url] += 1

    await a_crawler(manager, handle).run()
    assert sorted(seen) == URLS
    assert set(seen.values()) == {1}


async def test_two_crawlers_share_a_manager(manager: FrontierRequestManager) -> None:
    """The end of one takes nothing from the other, which is still at work."""
    seen: Counter[str] = Counter()
    one_is_over = asyncio.Event()

    async def wait(context: BasicCrawlingContext) -> None:
        seen[context.request.url] += 1
        await one_is_over.wait()

    async def handle(context: BasicCrawlingContext) -> None:
        seen[context.request.url] += 1
        if context.request.url == URLS[-1]:
            first.stop()

    slow, first = a_crawler(manager, wait, workers=1), a_crawler(manager, handle)
    await manager.add_requests(URLS)
    slow_run = asyncio.create_task(slow.run())
    while not seen:
        await asyncio.sleep(0)
    await first.run()
    assert not await manager.is_finished()
    one_is_over.set()
    await slow_run
    assert sorted(seen) == URLS
    assert set(seen.values()) == {1}


async def test_a_task_that_is_no_pools_owns_nothing() -> None:
    """A program of one's own may ask in one task, and handle in another."""

    async def ask() -> None:
        assert pool_run() is None
        assert current_run() is None

    await asyncio.create_task(ask())


def test_a_run_is_over_with_its_loop() -> None:
    """A loop that was closed runs none of its tasks again."""

    async def hang() -> None:
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    coroutine = hang()
    task = loop.create_task(coroutine)
    assert not is_run_over(task)
    loop.close()
    assert is_run_over(task)
    coroutine.close()
