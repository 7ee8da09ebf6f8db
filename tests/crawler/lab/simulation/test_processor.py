"""The one processor."""

from __future__ import annotations

import pytest

from anabranch.crawler.lab.simulation.processor import Processor, Speed


def test_work_waits_for_the_work_before_it() -> None:
    """First come, first served; idle time is not made up for."""
    processor = Processor(Speed(page_s=2.0))
    assert [processor.serve(now_s) for now_s in (10.0, 11.0, 20.0)] == [2.0, 3.0, 2.0]
    assert processor.busy_s == 6.0


def test_pages_that_come_during_a_turn_share_the_next() -> None:
    """A turn of 3 s and 1 s a page: 10-14 for the first; 14-20 for the three that came meanwhile; 20-24 for the last."""
    processor = Processor(Speed(page_s=1.0, turn_s=3.0))
    waits = [processor.serve(now_s) for now_s in (10.0, 11.0, 12.0, 13.0, 15.0)]
    assert waits == [4.0, 7.0, 7.0, 7.0, 9.0]
    assert processor.busy_s == pytest.approx(3 * 3 + 5 * 1)


def test_with_time_to_spare_each_page_has_a_turn_of_its_own() -> None:
    """Then a page costs as much as both."""
    processor = Processor(Speed(page_s=1.0, turn_s=3.0))
    assert [processor.serve(now_s) for now_s in (10.0, 14.0, 20.0)] == [4.0, 4.0, 4.0]
    assert processor.busy_s == 12.0
