"""Samples of a run, however long it is."""

from __future__ import annotations

from anabranch.crawler.lab.policies.series import Sample
from anabranch.crawler.lab.simulation.sampling import Series


def look(passed: Sample) -> Sample:
    return passed._replace(urls=2 * passed.at_s)


def times(samples: list[Sample]) -> list[float]:
    return [sample.at_s for sample in samples]


def test_a_long_run_is_sampled_less_often_and_evenly() -> None:
    """Samples stay at the multiples of one interval, never more than so many."""
    series = Series(look, most=8)
    for second in range(1, 1001):
        series.go_on(second + 0.5, 3)
        assert len(series.samples) <= 8
        assert times(series.samples) == [number * series.each_s for number in range(len(series.samples))]
    assert series.each_s == 128.0


def test_workers_are_counted_between_the_samples() -> None:
    """Seven of them for a tenth of a second between two samples are in the mean and in the peak."""
    series = Series(look)
    for at_s, active in ((0.5, 2), (0.6, 7), (1.5, 0), (2.25, 1)):
        series.go_on(at_s, active)
    samples = series.close()
    assert [(sample.at_s, round(sample.held_s, 9), sample.peak) for sample in samples] == [
        (0.0, 0, 0),
        (1.0, 1.7, 7),
        (2.0, 2.2, 1),
        (2.25, 2.45, 1),
    ]


def test_a_peak_outlives_the_sample_that_is_left_out() -> None:
    """However many times the interval is doubled, the most active workers of the run stand somewhere."""
    series = Series(look, most=8)
    series.go_on(2.5, 1)
    series.go_on(2.6, 99)
    series.go_on(500.0, 1)
    samples = series.close()
    assert max(sample.peak for sample in samples) == 99
    assert samples[-1].held_s == 500 + 98 * (2.6 - 2.5)


def test_the_end_is_sampled_once() -> None:
    """Whether or not it falls on a sample's time."""
    series = Series(look)
    series.go_on(1.0, 1)
    assert times(list(series.close())) == [0.0, 1.0]
    assert times(list(series.close())) == [0.0, 1.0]
    series.go_on(1.5, 1)
    assert times(list(series.close())) == [0.0, 1.0, 1.5]
