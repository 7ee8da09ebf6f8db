"""Scrapy's SCHEDULER, called as its engine calls it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("scrapy")

from scrapy import Request
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.scrapy import FrontierScheduler, FrontierSpiderMiddleware, session
from anabranch.frontier.hosts.scrapy import scheduler as scheduler_module
from anabranch.frontier.hosts.scrapy.requests import FOUND_ON, NUMBER, Requests, Unmade
from anabranch.frontier.records import Lease
from tests.frontier.hosts.scrapy.project import Quiet

URL = "http://a.test/"


class HandEngine:
    """Instead of what wakes Scrapy's engine, and asks it: the test does its work."""

    def __init__(self, crawler: Crawler) -> None:
        self._closed = crawler.closed  # type: ignore[attr-defined]

    def wake_from_thread(self) -> None: ...

    def wake_at(self, frontier: Frontier) -> None: ...

    def sleep(self) -> None: ...

    def wake(self) -> None: ...

    def is_under_way(self, request: Request) -> bool:
        return False

    def is_done_with(self, request: Request) -> bool:
        return False

    def close_spider(self, reason: str) -> None:
        self._closed.append(reason)


class Host:
    """The part of Scrapy's engine that a scheduler sees."""

    def __init__(self, scheduler: FrontierScheduler) -> None:
        self.scheduler = scheduler


@pytest.fixture
def crawler(monkeypatch: pytest.MonkeyPatch) -> Crawler:
    for module in (session, scheduler_module):
        monkeypatch.setattr(module, "Engine", HandEngine)
    made = Crawler(Quiet, {"FRONTIER": {"min_delay": 0, "max_connections": 9, "per_queue": 9}})
    made.request_fingerprinter = RequestFingerprinter()
    made.stats = MemoryStatsCollector(made)
    made.spider = Quiet.from_crawler(made)
    made.closed = []  # type: ignore[attr-defined]
    return made


@pytest.fixture
def scheduler(crawler: Crawler) -> Iterator[FrontierScheduler]:
    made = FrontierScheduler.from_crawler(crawler)
    assert made.open(crawler.spider) is None  # type: ignore[arg-type, func-returns-value]
    crawler.engine = Host(made)  # type: ignore[assignment]
    yield made
    made.close("finished")


def stats(crawler: Crawler) -> dict[str, Any]:
    assert crawler.stats is not None
    return crawler.stats.get_stats()


def test_it_is_what_scrapy_calls_a_scheduler() -> None:
    """Without having its class."""
    assert issubclass(FrontierScheduler, BaseScheduler)


def test_what_is_queued_is_counted(scheduler: FrontierScheduler, crawler: Crawler) -> None:
    """By the names of Scrapy's own."""
    assert not scheduler.has_pending_requests()
    assert scheduler.enqueue_request(Request(URL))
    assert not scheduler.enqueue_request(Request(URL))
    assert scheduler.enqueue_request(Request(URL, dont_filter=True))
    assert (len(scheduler), len(scheduler.mqs), scheduler.dqs) == (2, 2, None)
    assert scheduler.has_pending_requests()
    taken = [scheduler.next_request(), scheduler.next_request(), scheduler.next_request()]
    assert [request is not None for request in taken] == [True, True, False]
    assert not scheduler.has_pending_requests()
    assert stats(crawler) == {
        "scheduler/enqueued": 2,
        "scheduler/enqueued/memory": 2,
        "scheduler/dequeued": 2,
        "scheduler/dequeued/memory": 2,
        "dupefilter/filtered": 1,
    }


def test_what_has_no_host_passes_no_gate(scheduler: FrontierScheduler) -> None:
    """It is served at once, and filtered as all others are."""
    assert scheduler.enqueue_request(Request("data:,x"))
    assert not scheduler.enqueue_request(Request("data:,x"))
    assert scheduler.enqueue_request(Request("data:,x", dont_filter=True, meta={NUMBER: 1}))
    first, second = scheduler.next_request(), scheduler.next_request()
    assert first is not None
    assert second is not None
    assert NUMBER not in second.meta
    assert not len(scheduler)


def test_a_frontier_that_fails_closes_the_spider_once(
    scheduler: FrontierScheduler, crawler: Crawler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says why; nothing is raised into the engine's loop."""

    def broken(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(Frontier, "schedule", broken)
        patch.setattr(Frontier, "lease", broken)
        assert not scheduler.enqueue_request(Request(URL))
        assert scheduler.next_request() is None
    assert crawler.closed == ["frontier_unavailable"]  # type: ignore[attr-defined]
    assert caplog.text.count("the disk is full") == 1


def test_a_frontier_that_cannot_be_opened_closes_the_spider_at_its_first_request(
    crawler: Crawler, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is queued, and `close` has nothing to close."""
    crawler.settings.set("FRONTIER", {"polite": True})
    made = FrontierScheduler.from_crawler(crawler)
    made.open(crawler.spider)  # type: ignore[arg-type]
    assert "'polite' is no setting of the Frontier" in caplog.text
    assert not made.enqueue_request(Request(URL))
    assert made.next_request() is made.next_request() is None
    assert not made.has_pending_requests()
    made.close("frontier_unavailable")
    assert crawler.closed == ["frontier_unavailable"]  # type: ignore[attr-defined]


class Opened(BaseDupeFilter):
    """A filter of a project, which has what it needs once it is open."""

    def open(self) -> None:
        self.seen: set[str] = set()

    def request_seen(self, request: Request) -> bool:
        return request.url in self.seen

    def close(self, reason: str) -> None:
        self.seen.clear()


def test_a_filter_that_was_never_opened_is_neither_asked_nor_closed(
    crawler: Crawler, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not opened where the Frontier cannot be; one line says so."""
    crawler.settings.set("FRONTIER", {"polite": True})
    crawler.settings.set("DUPEFILTER_CLASS", Opened)
    made = FrontierScheduler.from_crawler(crawler)
    made.open(crawler.spider)  # type: ignore[arg-type]
    assert not made.enqueue_request(Request(URL))
    assert made.next_request() is None
    made.close("frontier_unavailable")
    assert crawler.closed == ["frontier_unavailable"]  # type: ignore[attr-defined]
    assert len(caplog.records) == 1


def test_what_no_request_can_be_made_of_is_dropped(
    scheduler: FrontierScheduler, crawler: Crawler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A line has its URL and the reason; it is counted, and the next one is served."""
    scheduler.enqueue_request(Request(URL + "old"))
    scheduler.enqueue_request(Request(URL))
    request_of = Requests.request

    def made(self: Requests, lease: Lease) -> Request | Unmade:
        return Unmade(lease.url, ValueError("no callback")) if lease.url.endswith("old") else request_of(self, lease)

    monkeypatch.setattr(Requests, "request", made)
    request = scheduler.next_request()
    assert request is not None
    assert request.url == URL
    assert stats(crawler)["scheduler/dropped"] == 1
    assert f"{URL}old is dropped, no request can be made of it: no callback" in caplog.text


def test_a_filter_of_the_project_decides(crawler: Crawler) -> None:
    """One that calls nothing a duplicate lets all through."""
    crawler.settings.set("DUPEFILTER_CLASS", "scrapy.dupefilters.BaseDupeFilter")
    made = FrontierScheduler.from_crawler(crawler)
    made.open(crawler.spider)  # type: ignore[arg-type]
    assert [made.enqueue_request(Request(URL)) for _ in range(3)] == [True, True, True]
    made.close("finished")


def test_the_middleware_marks_links_with_their_page(scheduler: FrontierScheduler, crawler: Crawler) -> None:
    """And knows when all were taken."""
    scheduler.enqueue_request(Request(URL))
    request = scheduler.next_request()
    assert request is not None
    flight = scheduler.flight_of(request.meta[NUMBER])
    assert flight is not None
    middleware = FrontierSpiderMiddleware.from_crawler(crawler)
    output = middleware.process_spider_output(Response(URL, request=request), [Request(URL + "a"), {"an": "item"}])
    link, _ = (next(iter(output)) for _ in range(2))
    assert link.meta[FOUND_ON] == request.meta[NUMBER]
    assert not flight.is_consumed
    assert list(output) == []
    assert flight.is_consumed
