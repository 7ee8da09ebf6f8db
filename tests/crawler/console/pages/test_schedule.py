"""The overview of a job speaks of its schedule."""

from anabranch.crawler.console.pages.schedule import notice_row, run_row, schedule_line
from anabranch.crawler.operate import clock_words

NOW_S = 1e9
FACTS = {"schedule": "30 3 * * MON", "zone": "Europe/Berlin", "starts": "again", "next_s": NOW_S + 60, "missed": 2}


def test_the_line_says_when_the_next_run_is_and_what_was_missed() -> None:
    """With the zone of a cron expression."""
    at = clock_words(NOW_S + 60, NOW_S)
    line = f"30 3 * * MON (Europe/Berlin), another round: next run at {at}, in 1m; 2 runs missed"
    assert schedule_line(FACTS, NOW_S) == line
    plain = {**FACTS, "schedule": "every 6h", "starts": "resume", "next_s": None, "missed": 0}
    assert schedule_line(plain, NOW_S) == "every 6h, what is queued: next run never again"


def test_a_run_says_what_came_of_it() -> None:
    """Also why it was left out, or failed."""
    run = {"due_s": NOW_S, "outcome": "failed", "words": "no contact", "missed": 0}
    assert run_row(run, NOW_S)["outcome"] == "not started: no contact"
    assert run_row({**run, "outcome": "started", "missed": 3}, NOW_S)["missed"] == "3"
    assert run_row({**run, "outcome": "still running"}, NOW_S)["outcome"].startswith("left out")


def test_a_notice_says_when_it_is_tried_next() -> None:
    """Or that it was given up."""
    notice = {"id": "msg_1", "to": "webhook", "made_s": NOW_S, "tries": 8, "next_s": None, "error": "x: answered 500"}
    assert notice_row(notice, NOW_S)["next"] == "given up after 8 tries"
    assert notice_row({**notice, "next_s": NOW_S + 10}, NOW_S)["next"].endswith("in 10s")
