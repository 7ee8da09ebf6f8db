"""The lines of a log that are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.crawler.console.pages.logs import (
    MOST_CHARS,
    _why_empty,
    crawl_log_cells,
    error_cells,
    fitting,
    line_filter,
    log_folders,
)
from anabranch.crawler.outcomes.errors import UsageError


def test_lines_are_found_by_a_text_or_a_regular_expression() -> None:
    """A text means itself."""
    lines = ["a.test 200", "aXtest 404"]
    assert fitting(lines, line_filter("a.test", is_pattern=False)) == ["a.test 200"]
    assert fitting(lines, line_filter("a.test [24]", is_pattern=True)) == ["a.test 200", "aXtest 404"]


@pytest.mark.parametrize("wrong", ["(", "[a-", "a{1001}", "*"])
def test_what_is_no_regular_expression_is_refused(wrong: str) -> None:
    """In one line that says why."""
    with pytest.raises(UsageError, match="is not a regular expression: "):
        line_filter(wrong, is_pattern=True)


def test_a_pattern_takes_no_longer_than_the_line_is_long() -> None:
    """A site chose the line, and somebody a pattern that would try all its parts."""
    assert fitting([f"{'a' * 1500}!"], line_filter(r"(a+)+\?x", is_pattern=True)) == []


def test_lines_are_printable_and_short() -> None:
    """Whatever a site wrote into them."""
    shown = fitting(["\x1b[31m\u202e\ufffd", "x" * 1_000_000], line_filter("", is_pattern=False))
    assert shown == ["\\x1b[31m\\u202e�", "x" * MOST_CHARS + "…"]


def test_why_no_line_of_a_log_is_shown_is_told(tmp_path: Path) -> None:
    """There is no log, or no line in it, or none that fits."""
    log = tmp_path / "crawl.log"
    assert _why_empty(log) == "the log does not exist yet"
    log.touch()
    assert _why_empty(log) == "the log is empty"
    log.write_text("a line\n")
    assert _why_empty(log) == "no line fits the filter"


def test_the_workers_of_a_job_have_logs_of_their_own(tmp_path: Path) -> None:
    """A folder of logs that is a link out of the job is left out; a job in a database has none here."""
    for number in (1, 2):
        (tmp_path / "job" / "workers" / str(number)).mkdir(parents=True)
    (tmp_path / "job" / "workers" / "2" / "logs").symlink_to(tmp_path)
    assert [*log_folders(tmp_path / "job")] == ["job", "worker 1"]
    assert log_folders(None) == {}


def test_the_lines_of_logs_have_columns() -> None:
    """A line that has no fields is left out; texts of sites are printable."""
    line = (
        "2026-11-29T19:36:34.829Z   404         27 http://a.test/1 L http://a.test/ text/plain #010 "
        "20261129193634824+4 sha1:A http://a.test/ 2t,round:2"
    )
    assert crawl_log_cells(line) == {
        "time": "2026-11-29T19:36:34.829Z", "status": "404", "url": "http://a.test/1", "size": "27", "took": "4ms",
        "type": "text/plain", "hops": "L", "notes": "2t, round:2",
    }  # fmt: skip
    error = {
        "time": "2026-01-01T00:00:00.000Z",
        "status": -2,
        "url": "http://a.test/\x1b",
        "message": None,
        "words": "refused",
    }
    found = error_cells(json.dumps({**error, "attempt": 1, "final": True}))
    assert found is not None
    assert (found["url"], found["reason"], found["next"]) == ("http://a.test/\\x1b", "refused", "given up")
    assert crawl_log_cells("a line") is None
    assert [error_cells(text) for text in ("{", "[]", "{}")] == [None, None, None]
