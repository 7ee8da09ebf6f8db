"""The one processor."""

from __future__ import annotations

from crawler.lab.simulation.processor import Processor


def test_work_waits_for_the_work_before_it() -> None:
    """First come, first served; idle time is not made up for."""
    processor = Processor()
    assert processor.serve(10.0, 2.0) == 2.0
    assert processor.serve(11.0, 2.0) == 3.0
    assert processor.serve(20.0, 2.0) == 2.0
    assert processor.busy_s == 6.0
