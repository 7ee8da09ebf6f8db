"""The one processor."""

from __future__ import annotations

import pytest

from crawler.lab.simulation.processor import Processor, Speed


def test_work_waits_for_the_work_before_it() -> None:
    """First come, first served; idle time is not made up for."""
    processor = Processor(Speed(page_s=2.0))
    assert [processor.serve(now_s) for now_s in (10.0, 11.0, 20.0)] == [2.0, 3.0, 2.0]
    assert processor.busy_s == 6.0


def test_whoever_finds_it_idle_waits_for_it_and_others_wait_with_him() -> None:
    """It is had from 15 s on: the first page until 17 s, the second, which came at 14 s, until 19 s."""
    processor = Processor(Speed(page_s=2.0, wait_s=5.0))
    assert processor.serve(10.0) == 7.0
    assert processor.serve(14.0) == 5.0


def test_a_turn_ends_and_the_next_is_waited_for() -> None:
    """Turns of 3 s with 5 s before each: 15-17 first page, 17-18 and 23-24 the second, 24-26 the third."""
    processor = Processor(Speed(page_s=2.0, wait_s=5.0, turn_s=3.0))
    assert [processor.serve(10.0) for _ in range(3)] == pytest.approx([7.0, 14.0, 16.0])
