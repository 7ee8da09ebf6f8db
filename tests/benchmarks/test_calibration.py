"""The calibration loop does the same work everywhere."""

import numpy as np

from scripts.benchmarks.calibration import new_table, rounds_per_s, work


def test_a_round_does_the_same_work_each_time() -> None:
    """Two tables end up alike, and a second round over one of them finds next to nothing new."""
    one, other = new_table(), new_table()
    new = work(one)
    assert new == work(other) > 19_000
    assert np.array_equal(one, other)
    assert work(one) < new // 1000


def test_the_speed_is_that_of_whole_rounds() -> None:
    """The median of the repetitions, as rounds per second."""
    assert rounds_per_s(repetitions=3) > 0
