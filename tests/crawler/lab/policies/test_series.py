"""Samples of runs: means, rates, outliers, averages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.policies.series import (
    MOST_POINTS,
    NOTHING_YET,
    Balance,
    Bound,
    Busy,
    HostSeen,
    Repeat,
    Sample,
    at,
    averaged,
    balance,
    bound,
    compared_s,
    is_crawler_limit,
    kept,
    mean_of_webs,
    mean_queues,
    means,
    ranked,
    rates,
    settled,
    with_ledger,
)
from anabranch.frontier.records import QueueKey
from tests.crawler.lab.policies.runs import entry_of, ledger_of, run_of, setting_of
from tests.rows import each_row


def test_between_two_samples_a_run_goes_in_a_straight_line() -> None:
    """Half a second after a sample, everything is half way to the next."""
    run = run_of(active=(0, 10, 20))
    assert at(run, 1.5) == Sample(1.5, 20, 20, 4, 2, 1, 20, 20_000)
    assert at(run, 1.0) == run.samples[1]


def test_after_its_end_a_run_has_no_active_worker_and_keeps_its_totals() -> None:
    """A drained run goes on with nobody at work, so that it can be averaged with a longer one."""
    run = run_of(active=(0, 10, 20))
    assert at(run, 7.0) == Sample(7.0, 30, 0, 0, 0, 0, 30, 30_000)


def test_the_mean_of_active_workers_is_weighted_by_time() -> None:
    """100 workers for a tenth of a second and 20 for another are 12 worker-seconds; 10 for the other 9.8 s are 98."""
    samples = (
        Sample(0.0, 0, 0, 0, 0, 0, 0, 0),
        Sample(0.1, 10, 100, 0, 0, 0, 0, 0),
        Sample(0.2, 12, 30, 0, 0, 0, 0, 0),
    )
    run = run_of(samples=(*samples, Sample(10.0, 110, 10, 0, 0, 0, 50, 1000)), duration_s=10.0)
    its = means(run, 10.0)
    assert its.active == 11.0
    assert its.peak == 100
    assert its.urls_per_s == 5.0
    assert its.bytes_per_s == 100.0


def test_means_go_no_further_than_the_interval() -> None:
    """Samples after the interval over which runs are compared do not count."""
    run = run_of(active=(10, 10, 10, 500, 500))
    its = means(run, 2.0)
    assert (its.active, its.peak, its.urls_per_s) == (10.0, 10, 15.0)
    assert means(run, 2.5).peak == 500


def test_a_run_of_no_time_has_no_means() -> None:
    """Nothing is divided by zero."""
    assert means(run_of(active=(0,)), 0.0) == (0.0, 0.0, 0.0, 0.0)
    assert mean_queues(run_of(samples=()), 0.0) == (0.0, 0.0, 0.0)


def test_runs_are_compared_over_the_time_of_the_shortest() -> None:
    """In it every policy had work."""
    assert compared_s([run_of(active=(1, 1, 1)), run_of(active=(1, 1)), run_of(active=(1,) * 9)]) == 1.0
    assert compared_s([]) == 0.0


def test_rates_are_of_the_time_between_two_samples() -> None:
    """Each rate is the increase since the sample before, a second."""
    samples = (NOTHING_YET, Sample(2.0, 8, 7, 0, 0, 0, 30, 5000), Sample(2.5, 11, 9, 0, 0, 0, 40, 6000))
    assert rates(run_of(samples=samples)) == [(0, 0, 0, 0), (2.0, 4.0, 15.0, 2500.0), (2.5, 6.0, 20.0, 2000.0)]


def test_a_run_has_what_the_server_saw() -> None:
    """Hosts and the verdict."""
    run = with_ledger(run_of(), ledger_of(entry_of("a.test", crawl_delay_s=0.5)))
    assert run.hosts == (HostSeen("a.test", 9, 2, 0.05, 3.0, 0.5, 0.1),)
    assert run.is_polite
    assert run.verdict.startswith("kept on 1 hosts")


def test_a_broken_rule_makes_a_run_impolite() -> None:
    """The verdict says where."""
    run = with_ledger(run_of(), ledger_of(entry_of("a.test", too_many=1), entry_of("b.test")))
    assert not run.is_polite
    assert "a.test" in run.verdict


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


def test_repeats_of_two_policies_compare_over_the_same_time() -> None:
    """One that drains sooner must not be held against the whole of another: its best seconds would be."""
    runs = [run_of(active=(0, 9, 1, 1)), run_of(active=(0, 9, 1, 1))]
    for summed_up in (settled(runs, 1.0), mean_of_webs(runs, 1.0)):
        assert [(each.active, each.compared_active) for each in summed_up.repeats] == [(11 / 3, 9.0)] * 2
    assert [each.compared_active for each in settled(runs).repeats] == [None, None]


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


@each_row(
    ("politeness", "connections", "queues", "workers", "most"),
    [
        ("paper", 1, 997, 1000, 997),
        ("paper", 1, 997, 100, 100),
        ("off", 8, 997, 1000, 997),
        ("polite", 1, 997, 1000, 10),
        ("polite", 8, 997, 1000, 80),
        ("polite", 8, 10, 1000, 10),
    ],
)
def test_queues_slots_and_workers_bound_what_is_possible(
    politeness: str, connections: int, queues: int, workers: int, most: int
) -> None:
    """A queue has one URL in flight; under polite a host has as many as its gate has slots."""
    setting = setting_of(politeness=politeness, connections=connections, workers=workers)
    assert bound(setting, run_of(queue_lengths=Balance(5000, queues, 100))).fetches == most


def test_where_nobody_counted_the_hosts_only_queues_and_workers_bound_it() -> None:
    """A real crawl does not know its hosts beforehand."""
    assert bound(setting_of(hosts=0), run_of(queue_lengths=Balance(5000, 50, 100))) == Bound(50, "50 queues")


def test_policies_are_ranked_by_active_workers_over_the_common_interval() -> None:
    """The later part of a longer run does not lift its rank."""
    late, early = run_of("late", active=(1, 1, 99, 99)), run_of("early", active=(5, 5))
    assert [run.policy for run, _ in ranked([late, early])] == ["early", "late"]


def test_a_crawler_that_is_late_by_less_than_a_fetch_takes_was_not_the_limit() -> None:
    """Half a second late matters where pages come in a tenth of one, not where they take a whole one."""
    late = run_of(crawler=Busy(0.3, 0.5))
    assert is_crawler_limit(setting_of(latency_s=0.1), late)
    assert not is_crawler_limit(setting_of(latency_s=1.0), late)
    assert is_crawler_limit(setting_of(latency_s=1.0), run_of(crawler=Busy(0.9, 0.5)))


def test_balance_counts_queues_and_compares_the_longest_with_the_mean() -> None:
    """Two URLs in one queue and one in another: the longest has a third more than its share."""
    found = balance([QueueKey("a"), QueueKey("b"), QueueKey("a")])
    assert found == Balance(urls=3, queues=2, longest=2)
    assert found.mean == 1.5
    assert found.max_over_mean == pytest.approx(4 / 3)


def test_nothing_is_balanced() -> None:
    """No URLs, no division by zero."""
    found = balance([])
    assert (found, found.mean, found.max_over_mean) == (Balance(0, 0, 0), 0.0, 0.0)
