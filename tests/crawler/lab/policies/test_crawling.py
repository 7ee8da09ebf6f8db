"""Looks at a running crawl."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from anabranch.crawler.lab.policies.crawling import Sampler
from anabranch.crawler.lab.policies.series import Busy, Sample
from anabranch.crawler.report.statistics import CrawlStatistics
from tests.crawler.builder import memory_frontier, until


async def watched(sampler: Sampler, counts: CrawlStatistics, told: list[Sample]) -> None:
    """Watch a Frontier with three URLs on two hosts until something was told."""
    async with memory_frontier("http://a.test/1", "http://a.test/2", "http://b.test/") as frontier:
        watching = asyncio.create_task(sampler.watch(frontier, counts))
        before = len(told)
        lease = await frontier.lease()
        await until(lambda: len(told) > before)
        frontier.release(lease)
        counts.active = 0
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_the_first_sample_is_of_the_start_and_the_last_of_the_end() -> None:
    """Workers, URLs that have ended however, and bytes; a crawl that is not drained has queues in the end."""
    counts = CrawlStatistics(started_s=0.0, pages=5, failed=2, excluded=1, fetched_bytes=900, active=3)
    told: list[Sample] = []
    sampler = Sampler(told.append)
    await watched(sampler, counts, told)
    assert told[0].at_s < 0.5
    assert (told[0].peak, told[0].urls, told[0].bytes) == (3, 8, 900)
    assert (told[-1].at_s, told[-1].urls, told[-1].bytes) == (sampler.ended_s, 8, 900)
    assert told[0].ready > 0
    assert told[-1].ready > 0
    assert not sampler.is_drained


async def test_a_crawl_that_ends_before_it_was_looked_at_is_sampled_at_its_end() -> None:
    """A web of a page or two is done before the queues have answered."""
    counts, told = CrawlStatistics(started_s=0.0, pages=2), []
    sampler = Sampler(told.append)
    async with memory_frontier("http://a.test/") as frontier:
        watching = asyncio.create_task(sampler.watch(frontier, counts))
        await asyncio.sleep(0)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    assert [(sample.at_s, sample.urls) for sample in told] == [(sampler.ended_s, 2)]


async def test_a_crawl_that_goes_on_is_sampled_on_the_same_clock() -> None:
    """A URL added at the last moment starts the workers again, but not the clock."""
    counts, told = CrawlStatistics(started_s=0.0), []
    sampler = Sampler(told.append, iter([10.0 + step / 100 for step in range(10_000)]).__next__)
    await watched(sampler, counts, told)
    first_end_s = sampler.ended_s
    await watched(sampler, counts, told)
    assert sampler.ended_s > first_end_s > 0
    times = [sample.at_s for sample in told]
    assert times == sorted(times)


async def test_how_busy_the_process_was_is_known_afterwards() -> None:
    """Before anything was watched, it is nothing."""
    told: list[Sample] = []
    sampler = Sampler(told.append)
    assert sampler.busy() == Busy(0.0, 0.0)
    await watched(sampler, CrawlStatistics(started_s=0.0), told)
    assert sampler.busy().share >= 0
