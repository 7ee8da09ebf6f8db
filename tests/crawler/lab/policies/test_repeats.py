"""Repeats of a policy: outliers and averages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.policies.repeats import MOST_POINTS, averaged, kept, mean_of_webs, settled
from anabranch.crawler.lab.policies.series import Busy, HostSeen, Repeat, compared_s, means, rates
from anabranch.frontier.policies.balance import Balance
from tests.crawler.lab.policies.runs import run_of


def test_repeats_more_than_three_median_deviations_off_are_dropped() -> None:
    """Median 10, median deviation 1: 13 is kept, 13.1 is not; nor is what is too low."""
    assert kept([9.0, 10.0, 11.0, 13.0, 10.0]) == [True, True, True, True, True]
    assert kept([9.0, 10.0, 11.0, 13.1, 10.0, 9.0, 11.0, 1.0]) == [True, True, True, False, True, True, True, False]


def test_of_two_repeats_none_is_dropped() -> None:
    """Nobody can tell which of them is off."""
    assert kept([1.0, 100.0]) == [True, True]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=20))
def test_most_repeats_are_always_kept(values: list[float]) -> None:
    """At least half of the values lie within one median deviation of the median."""
    assert sum(kept(values)) * 2 >= len(values)


def test_dropped_repeats_are_counted_and_leave_the_mean() -> None:
    """One run that was disturbed changes nothing but the count."""
    good = [run_of(active=(10, level, 10)) for level in (10, 11, 9, 10)]
    result = settled([*good, run_of(active=(90, 90, 90))])
    assert (result.runs, result.dropped) == (4, 1)
    assert [rate.active for rate in rates(result)] == [0, 10, 10]


def test_every_repeat_is_told_of_by_itself() -> None:
    """Also the dropped one; each over the time that all of them had work."""
    result = settled([run_of(active=(0, 4, 4)), run_of(active=(0, 4, 4, 4)), run_of(active=(0, 9, 9))])
    assert result.repeats == (Repeat(4, 4, 2, True), Repeat(4, 4, 3, True), Repeat(9, 9, 2, False))


def test_webs_are_never_dropped() -> None:
    """In virtual time nothing disturbs a run: what is far off is another web, and every policy must have the same webs."""
    webs = [run_of(active=(10, level, 10)) for level in (10, 11, 9, 10, 90)]
    assert (mean_of_webs(webs).runs, mean_of_webs(webs).dropped) == (5, 0)


def test_what_must_hold_is_that_of_the_worst_repeat() -> None:
    """A ledger that was broken once is broken, even if that repeat is dropped; connections and gaps are the worst."""
    clean = run_of(active=(10, 10), hosts=(HostSeen("a", 5, 1, 0.2, 1.0),), verdict="kept")
    broken = run_of(active=(90, 90), hosts=(HostSeen("a", 4, 3, None, 2.0),), verdict="broken", is_polite=False)
    result = settled([clean, clean, clean, broken])
    assert result.dropped == 1
    assert (result.is_polite, result.verdict) == (False, "broken")
    assert result.hosts == (HostSeen("a", 5, 3, 0.2, 2.0),)


def test_the_requests_of_hosts_are_means_so_that_their_sum_is_one() -> None:
    """A host that one of two runs did not come to counts with half of what the other had."""
    first = run_of(hosts=(HostSeen("a", 100, 1, None, 1.0), HostSeen("b", 1, 1, None, 1.0)))
    second = run_of(hosts=(HostSeen("a", 50, 1, None, 1.0), HostSeen("c", 51, 1, None, 1.0)))
    assert [(host.host, host.requests) for host in settled([first, second]).hosts] == [("a", 75), ("c", 26), ("b", 0)]


def test_an_averaged_run_goes_as_long_as_the_longest() -> None:
    """A repeat that ended sooner counts with nobody at work."""
    result = averaged([run_of(active=(8, 8)), run_of(active=(8, 8, 8, 8), is_drained=False)])
    assert [sample.at_s for sample in result.samples] == [0, 1, 2, 3]
    assert [rate.active for rate in rates(result)] == [0, 8, 4, 4]
    assert result.duration_s == 2.0
    assert not result.is_drained


def test_repeats_are_compared_while_all_of_them_had_work() -> None:
    """Time in which one of them had ended would be a mean of nothing."""
    result = averaged([run_of(active=(0, 100)), run_of(active=(0, 100, 100, 100))])
    assert compared_s([result]) == 1.0
    assert means(result, compared_s([result])).active == 100


def test_the_peak_of_repeats_is_the_highest_of_any() -> None:
    """Peaks that come a second apart are no lower for it."""
    result = averaged([run_of(active=(0, 1000, 0, 0)), run_of(active=(0, 0, 1000, 0))])
    assert means(result, 3.0).peak == 1000
    assert [sample.peak for sample in result.samples] == [0, 1000, 1000, 0]


def test_an_averaged_run_was_as_busy_as_the_busiest() -> None:
    """How it waited for the processor is that of one run; a server that was too late once may have slowed a run down."""
    runs = [
        run_of(server=Busy(0.2, 0.5, 0.9), queue_lengths=Balance(10, 2, 6)),
        run_of(server=Busy(0.3, 0.1, 0.1), queue_lengths=Balance(10, 2, 5)),
    ]
    assert averaged(runs).server == Busy(0.3, 0.5, 0.1)
    assert averaged(runs).crawler is None
    assert averaged(runs).queue_lengths == Balance(10, 2, 5)


def test_one_run_is_its_own_mean() -> None:
    """Its samples are not moved to whole seconds."""
    run = run_of(active=(1, 2, 3), duration_s=2.7)
    assert averaged([run]) is run
    with pytest.raises(ValueError, match="no run"):
        settled([])


def test_the_average_of_very_long_runs_has_a_bounded_number_of_points() -> None:
    """Simulated crawls last for weeks: a point a second would be a million."""
    long = [run_of(duration_s=1e6), run_of(duration_s=5e5)]
    assert len(averaged(long).samples) <= MOST_POINTS + 1
