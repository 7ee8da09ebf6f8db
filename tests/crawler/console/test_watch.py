"""Tests of watched jobs: one question to a job for all windows, and its past."""

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.crawler.console.watch import EVERY_S, News, WatchedJobs, sample
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.report.metrics import BUILD

ROW = {"job": "news", "phase": "running", "free_disk_bytes": 1, "last_trouble": None}
STATUS = {"phase": "running", "active": 2, "pending": 9, "pages": 10, "fetched_bytes": 5000, "filter": None}
METRICS = {BUILD: "1.0", "anabranch_fetches_total": 10, "anabranch_fetching_seconds_total": 2.0}


class Jobs:
    """Jobs that count what they are asked."""

    def __init__(self) -> None:
        self.row, self.status, self.numbers = dict(ROW), dict(STATUS), dict(METRICS)
        self.asked: list[str] = []
        self.is_away = False

    def rows(self) -> list[Any]:
        return [dict(self.row)]

    def directory(self, _: str) -> None:
        return None

    def job(self, _: str) -> Any:
        return SimpleNamespace(status=self._status)

    def _status(self) -> Any:
        self.asked.append("status")
        if self.is_away:
            raise CrawlerError("it does not answer")
        return dict(self.status)

    def metrics(self, _: str) -> Any:
        self.asked.append("metrics")
        return dict(self.numbers)


class Watch:
    """The watched jobs, at a time that the test sets."""

    def __init__(self) -> None:
        self.jobs, self.now_s = Jobs(), 100.0
        fake: Any = self.jobs
        self.watched = WatchedJobs(fake, lambda: self.now_s)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_job_is_asked_once_however_many_look(watch) -> None:
    """And again when it is due."""
    for _ in range(5):
        assert watch.watched.status("news") == STATUS
        assert len(watch.watched.samples("news")) == 1
        assert watch.watched.answer("news") == STATUS
    assert watch.jobs.asked == ["status", "metrics"]
    watch.now_s += EVERY_S
    assert len(watch.watched.samples("news")) == 2
    assert watch.watched.version("news") == "1.0"


def test_a_stopped_job_is_opened_once_until_something_changes(watch) -> None:
    """Its free room changes all the time, and is nothing of it; what was done to it is."""
    watch.jobs.row["phase"] = watch.jobs.status["phase"] = "stopped"
    for free in range(3):
        watch.jobs.row["free_disk_bytes"] = free
        watch.now_s += EVERY_S
        watch.watched.status("news")
    assert watch.jobs.asked == ["status"]
    watch.watched.forget("news")
    watch.watched.status("news")
    assert watch.jobs.asked == ["status"] * 2


def test_a_job_that_does_not_answer_has_no_status(watch) -> None:
    """Its past is kept."""
    watch.watched.status("news")
    watch.jobs.is_away = True
    watch.now_s += EVERY_S
    assert watch.watched.status("news") is None
    with pytest.raises(CrawlerError, match="it does not answer"):
        watch.watched.answer("news")
    assert len(watch.watched.samples("news")) == 1


def test_rates_are_since_the_moment_before() -> None:
    """Not across two runs, whose counters begin anew."""
    first = sample(100.0, STATUS, METRICS, None)
    assert (first.pages_per_s, first.latency_s) == (None, None)
    later = {**METRICS, "anabranch_fetches_total": 14, "anabranch_fetching_seconds_total": 4.0}
    second = sample(102.0, {**STATUS, "pages": 14, "fetched_bytes": 9000}, later, first)
    assert (second.pages_per_s, second.kb_per_s, second.latency_s) == (2.0, 2.0, 0.5)
    anew = sample(104.0, {**STATUS, "pages": 1}, METRICS, second)
    assert anew.pages_per_s is None


def test_a_job_at_rest_has_news_once_until_its_row_changes() -> None:
    """A free disk is no news; a crawl that runs always has some."""
    news, stopped = News(), {"phase": "stopped", "pages": 5, "free_disk_bytes": 1}
    assert [news.has(stopped), news.has({**stopped, "free_disk_bytes": 2}), news.has({**stopped, "pages": 6})] == [
        True,
        False,
        True,
    ]
    running = {**stopped, "phase": "running"}
    assert [news.has(running), news.has(running), news.has(stopped)] == [True, True, True]
