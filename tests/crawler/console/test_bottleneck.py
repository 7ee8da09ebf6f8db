"""What limits a job, in a sentence."""

from __future__ import annotations

import pytest

from anabranch.crawler.console.bottleneck import bottleneck
from anabranch.crawler.report.jobstatus import CrawlSnapshot, status_facts

ROW = {"state": "running", "phase": "running", "pid": 7, "line": "x", "is_finished": False, "ended": None, "queued": 5}
LEFT = {**ROW, "state": "stopped", "phase": "stopped", "pid": None}


def of_crawl(phase="running", **now):
    """The sentence about a crawl of ten workers and five queued URLs that does this now."""
    snapshot = CrawlSnapshot(**{"workers": 10, "pending": 5, **now})
    return bottleneck({**ROW, "phase": phase}, status_facts(snapshot, phase, "x", pid=7))


@pytest.mark.parametrize(
    ("now", "words", "page"),
    [
        ({"active": 10}, "Its workers limit it: 10 of 10 are busy", "workers"),
        (
            {"active": 1, "ready": 4, "parked": 3, "wakes_in_s": 2.0},
            "Politeness limits it: 3 of 4 queues wait",
            "hosts",
        ),
        ({"active": 4, "on_slow_hosts": 3}, "Slow and new hosts limit it: 3 of 4 busy workers", "hosts"),
        ({"waiting": 5, "wakes_in_s": 60.0}, "All 5 URLs wait for another try, the next for 1m", "hosts"),
        ({"active": 2, "pending": 0}, "The queue is empty: 2 of 10 workers are busy with the last URLs", ""),
        ({"active": 3, "ready": 3}, "Its hosts limit it: all are being fetched from", "hosts"),
        ({"trouble": "the disk is full"}, "The disk is full.", "logs"),
        ({"awaits": "waits for proxy p since t: refused"}, "Waits for proxy p since t: refused.", "logs"),
        ({"failing": 2}, "No seed has answered so far.", "reports"),
    ],
)
def test_a_crawl_says_what_limits_it_and_where_to_look(now, words, page) -> None:
    """The strongest cause first; what an operator must see to is bad."""
    found = of_crawl(**now)
    assert found.words.startswith(words)
    assert found.page == page
    assert found.is_bad == (page in {"logs", "reports"})


def test_a_pause_names_who_paused_it_and_how_it_ends() -> None:
    """By the operator, or by a limit, which can be raised."""
    by_hand = of_crawl("paused", paused="paused by the operator")
    assert (by_hand.verb, by_hand.page) == ("Resume", "")
    assert by_hand.words == "It is paused by the operator. Resume continues it."
    by_limit = of_crawl("paused", paused="paused by limits.pages")
    assert (by_limit.verb, by_limit.page, by_limit.key) == ("Resume", "order", "limits.pages")


@pytest.mark.parametrize(
    ("row", "words", "verb"),
    [
        ({"line": "not started yet"}, "It has not been started yet.", "Start"),
        ({"state": "finished", "is_finished": True}, "It is finished: nothing is queued.", "Another round"),
        ({"line": "stopped by a signal"}, "Stopped by a signal. 5 URLs queued.", "Start"),
        ({"state": "killed", "line": "killed; x"}, "Killed; x.", "Start"),
        ({"state": "unknown", "phase": "unknown", "line": "does not answer"}, "Does not answer.", ""),
        ({"state": "starting", "phase": "starting"}, "It starts: its process opens the queue.", ""),
    ],
)
def test_a_job_that_rests_says_how_it_goes_on(row, words, verb) -> None:
    """By the button that is named."""
    found = bottleneck({**LEFT, **row}, None)
    assert found.words.startswith(words)
    assert found.verb == verb


def test_a_limit_that_ended_the_run_can_be_raised() -> None:
    """On the page of the order."""
    found = bottleneck({**LEFT, "ended": {"why": "page_limit", "words": "", "time_s": 0.0}}, None)
    assert (found.words, found.key) == ("It reached limits.pages. 5 URLs queued.", "limits.pages")
