"""A server counts requests by page; a crawl is complete if it fetched each page once."""

from __future__ import annotations

from scripts.benchmarks.site.tally import Counting, Tally


def counted(*paths: bytes) -> Tally:
    counting = Counting()
    for at, path in enumerate(paths):
        counting.add(path, 100.0 + at)
    return counting.take()


def test_a_page_more_than_once_is_told_from_other_pages() -> None:
    """Other paths are counted apart from pages."""
    tally = counted(b"/pages/0.html", b"/pages/1.html", b"/pages/0.html", b"/robots.txt")
    assert (tally.requests, tally.pages, tally.repeated, tally.others) == (4, 2, 1, 1)
    assert (tally.first_s, tally.last_s, tally.took_s) == (100.0, 103.0, 3.0)


def test_a_whole_crawl_fetched_each_page_once() -> None:
    """One too few is a fault, and one too many is."""
    assert counted(b"/pages/0.html", b"/pages/1.html").fault(2) == ""
    assert "1 of 2 pages" in counted(b"/pages/0.html").fault(2)
    assert "1 times" in counted(b"/pages/0.html", b"/pages/1.html", b"/pages/1.html").fault(2)


def test_each_count_begins_anew() -> None:
    """A crawl is not judged by what came before it."""
    counting = Counting()
    counting.add(b"/pages/0.html", 1.0)
    counting.take()
    assert counting.take() == Tally()
