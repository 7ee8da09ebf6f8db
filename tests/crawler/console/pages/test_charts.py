"""The curves of the pages."""

import time

from anabranch.crawler.console.pages.charts import begin_of, mark_lines, points
from anabranch.crawler.console.pages.shell import zone_ms, zone_name
from anabranch.crawler.console.watch import Moment
from anabranch.crawler.report.logtail import RunMark


def test_a_line_is_broken_where_nothing_was_known_for_long() -> None:
    """Between two runs there was no crawl; a moment without a value is left out."""
    assert points([(0.0, 1.0), (60.0, None), (100.0, 2.0), (500.0, 3.0)]) == [
        [0.0, 1.0],
        [100_000.0, 2.0],
        [100_001.0, None],
        [500_000.0, 3.0],
    ]


def test_a_chart_has_a_line_for_each_mark_from_its_begin_on() -> None:
    """The start shortly before the first sample belongs to it; what was long ago does not."""
    marks = [RunMark(10.0, "start"), RunMark(20.0, "kill"), RunMark(900.0, "start"), RunMark(990.0, "stop")]
    begin_s = begin_of([Moment(930.0, None, None, 0, 0)], marks)
    assert begin_s == 900.0
    lines = mark_lines(marks, begin_s)["data"]
    assert [(one["xAxis"], one["label"]["formatter"]) for one in lines] == [
        (zone_ms(900.0), "start"),
        (zone_ms(990.0), "stop"),
    ]
    assert begin_of([Moment(930.0, None, None, 0, 0)], marks[:2]) == 930.0


def test_times_are_those_of_the_zone_that_a_page_names(monkeypatch) -> None:
    """A chart shows UTC, so its points are shifted."""
    monkeypatch.setenv("TZ", "CET-1CEST")
    time.tzset()
    try:
        assert (zone_ms(0.0), zone_name(0.0)) == (3_600_000.0, "CET (UTC+01:00)")
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        assert (zone_ms(1.5), zone_name(0.0)) == (1500.0, "UTC")
    finally:
        monkeypatch.undo()
        time.tzset()
