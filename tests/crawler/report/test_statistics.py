"""Tests of the counts of one run."""

from __future__ import annotations

import pytest

from anabranch.crawler.accounts.totals import MAX_TYPES, OTHER_TYPES
from anabranch.crawler.outcomes.failures import ConnectFailed
from anabranch.crawler.report.statistics import (
    CrawlStatistics,
    LeaseTimes,
    Rates,
    RateWindow,
    StepTime,
    WorkerBoard,
    WorkerFact,
)
from anabranch.crawler.visit import ChainDecision
from anabranch.frontier.records import OutcomeKind
from tests.crawler.builder import START_S, response, visit
from tests.rows import each_row

PAGE = visit(answer=response(404, b"12345", Content_Type="text/html; charset=utf-8"))
BARE = visit(answer=response(200))
DEAD = visit(failure=ConnectFailed("refused"))
SHUT = visit(decision=ChainDecision.EXCLUDED)


def counted(*ended):
    statistics = CrawlStatistics(started_s=START_S)
    for one, kind in ended:
        statistics.count(one, kind)
    return statistics


@each_row(
    ("one", "kind", "changed"),
    [
        (
            PAGE,
            OutcomeKind.DONE,
            {"pages": 1, "fetched_bytes": 5, "by_status": {404: 1}, "by_mime": {"text/html": 1}},
        ),
        (BARE, OutcomeKind.DONE, {"pages": 1, "by_status": {200: 1}, "by_mime": {"no-type": 1}}),
        (DEAD, OutcomeKind.FAILED, {"failed": 1, "by_status": {-2: 1}, "seed_failures": {"http://a.test/": "refused"}}),
        (SHUT, OutcomeKind.DISREGARDED, {"excluded": 1, "by_status": {-9998: 1}}),
        (DEAD, OutcomeKind.RETRY, {"retries": 1, "seed_failures": {"http://a.test/": "refused"}}),
        (PAGE, OutcomeKind.DEFERRED, {"fetched_bytes": 5}),
        (visit(broken=KeyError()), OutcomeKind.FAILED, {"failed": 1, "broken": 1, "by_status": {-5: 1}}),
    ],
)
def test_a_visit_counts_where_its_outcome_says(one, kind, changed) -> None:
    """Only what ended a URL has a status; bytes count whatever they were fetched for."""
    assert counted((one, kind)) == CrawlStatistics(started_s=START_S, **changed)


def test_visits_add_up() -> None:
    """Two pages of a kind are two."""
    statistics = counted((PAGE, OutcomeKind.DONE), (PAGE, OutcomeKind.DONE))
    assert (statistics.pages, statistics.by_status[404], statistics.by_mime["text/html"]) == (2, 2, 2)


def test_the_faults_of_sitemaps_add_up_by_kind() -> None:
    """With the number of sitemaps that have some; other annotations are none."""
    pages = [visit(answer=response(200)) for _ in range(3)]
    for page, note in zip(pages, ("sitemapBroken:2bytes+1tags", "sitemapBroken:3tags", "sitemapCut"), strict=True):
        page.notes = (note, "other")
    statistics = counted(*((page, OutcomeKind.DONE) for page in pages))
    assert statistics.sitemap_faults == {"sitemaps": 2, "bytes": 2, "tags": 4}


def test_media_types_beyond_a_number_are_counted_together() -> None:
    """Sites send what they like."""
    pages = [visit(answer=response(200, Content_Type=f"a/{number}")) for number in range(MAX_TYPES + 5)]
    by_mime = counted(*((page, OutcomeKind.DONE) for page in pages)).by_mime
    assert (len(by_mime), by_mime[OTHER_TYPES]) == (MAX_TYPES + 1, 5)


def test_only_a_seeds_failure_is_kept_in_words() -> None:
    """The words of every failing link would fill the memory."""
    assert counted((visit(failure=ConnectFailed("refused"), hops="L"), OutcomeKind.FAILED)).seed_failures == {}


def test_a_seed_that_was_answered_at_last_has_no_failure() -> None:
    """The seeds report must not give an answered seed the reason of an earlier try."""
    assert counted((DEAD, OutcomeKind.RETRY), (BARE, OutcomeKind.DONE)).seed_failures == {}


def test_leases_are_counted_by_how_long_they_took() -> None:
    """Each bucket holds the shorter ones, too, and the last one all."""
    times = LeaseTimes()
    for waited_s in (0.0, 0.001, 0.002, 5000.0):
        times.add(waited_s)
    numbers = times.numbers()
    assert numbers.pop("sum") == pytest.approx(5000.003)
    assert [*numbers.items()] == [
        ("0.0001", 1), ("0.001", 2), ("0.01", 3), ("0.1", 3), ("1.0", 3), ("10.0", 3), ("100.0", 3), ("1000.0", 3), ("+Inf", 4),
    ]  # fmt: skip


class Timer:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_board_shows_who_is_where_for_how_long() -> None:
    """By worker; one that is idle is not on it."""
    timer = Timer()
    board = WorkerBoard(timer)
    board.begin(2, "http://b.test/", 1)
    board.begin(1, "http://a.test/", 0)
    timer.now = 1.0
    board.enter(1, "fetch")
    timer.now = 3.0
    assert board.facts() == [
        WorkerFact(1, "http://a.test/", 0, "fetch", 2.0, 3.0),
        WorkerFact(2, "http://b.test/", 1, "", 3.0, 3.0),
    ]
    board.end(1)
    board.end(2)
    assert board.facts() == []


def test_the_board_adds_up_the_time_in_each_processor() -> None:
    """From entering one to entering the next, or the end."""
    timer = Timer()
    board = WorkerBoard(timer)
    for seconds in (1.0, 3.0):
        board.begin(1, "u", 0)
        board.enter(1, "fetch")
        timer.now += seconds
        board.enter(1, "extract")
        timer.now += 0.5
        board.end(1)
    assert board.times == {"fetch": StepTime(2, 4.0, 3.0), "extract": StepTime(2, 1.0, 0.5)}
    assert board.times["fetch"].mean_s == 2.0
    assert StepTime().mean_s == 0.0


def test_rates_are_over_the_last_seconds_and_over_the_whole_run() -> None:
    """A crawl that has stopped shows it within the window."""
    window = RateWindow(window_s=10.0)
    assert window.rates(0.0, 0, 0) == Rates(0.0, 0.0, 0.0, 0.0)
    for second in range(1, 101):
        window.rates(float(second), 5 * second, 50 * second)
    assert window.rates(100.0, 500, 5000) == Rates(5.0, 5.0, 50.0, 50.0)
    for second in range(101, 112):
        last = window.rates(float(second), 500, 5000)
    assert last.pages_now == 0.0
    assert last.pages_mean == pytest.approx(500 / 111)


def test_rates_of_now_are_of_the_last_window_however_seldom_they_are_asked_for() -> None:
    """A log that asks once in a window shows what happened in it, and not in the twenty before."""
    window = RateWindow(window_s=20.0)
    for turn in range(1, 11):
        busy = window.rates(20.0 * turn, 100 * turn, 1000 * turn)
    assert (busy.pages_now, busy.bytes_now) == (5.0, 50.0)
    assert window.rates(220.0, 1000, 10_000).pages_now == 0.0
    window.rates(239.0, 1000, 10_000)  # somebody else asks in between
    assert window.rates(240.0, 1200, 12_000).pages_now == 10.0
