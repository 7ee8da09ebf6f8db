"""Samples of a run, however long it is."""

from __future__ import annotations

from crawler.lab.policies.series import Sample
from crawler.lab.simulation.sampling import Series


def look(at_s: float) -> Sample:
    return Sample(at_s, at_s, 0, 0, 0, 2 * at_s, 0)


def test_a_long_run_is_sampled_less_often_and_evenly() -> None:
    """Samples stay at the multiples of one interval, never more than so many."""
    series = Series(look, most=8)
    while series.next_s() <= 1000:
        series.take()
        assert len(series.samples) <= 8
        assert [sample.at_s for sample in series.samples] == [
            number * series.each_s for number in range(len(series.samples))
        ]
    assert series.each_s == 128.0


def test_the_end_is_sampled_once() -> None:
    """Whether or not it falls on a sample's time."""
    series = Series(look)
    series.take()
    assert [sample.at_s for sample in series.close(1.0)] == [0.0, 1.0]
    assert [sample.at_s for sample in series.close(1.5)] == [0.0, 1.0, 1.5]
