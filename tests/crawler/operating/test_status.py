"""The status of a run, as JSON has it."""

from __future__ import annotations

from crawler.operating.course import Course
from crawler.operating.limits import DiskWatch
from crawler.operating.status import Status
from crawler.orders.order import CrawlOrder
from crawler.reporting.statistics import CrawlStatistics
from tests.crawler.builder import memory_frontier


async def test_what_a_shared_filter_counts_stands_in_the_status() -> None:
    """As whole numbers, once a closer look was taken; without such a filter nothing is said of it."""
    async with memory_frontier("http://a.test/") as frontier:
        course = Course(print)
        status = Status(
            course, CrawlStatistics(started_s=0.0), DiskWatch([], 0, course), CrawlOrder(), "job", frontier.core.now_s
        )
        looked = await frontier.statistics()
        status.look_at(frontier.core, lambda: looked)
        assert "shared_twice" not in status.facts()
        looked = looked._replace(seen={"keys": 1.0, "shared_left": 3.0, "shared_twice": 2.0})
        facts = status.facts()
    assert (facts["shared_left"], facts["shared_twice"]) == (3, 2)
