"""Samples of runs: means, rates, outliers, averages."""

from __future__ import annotations

from anabranch.crawler.lab.policies.series import (
    NOTHING_YET,
    HostSeen,
    Sample,
    at,
    compared_s,
    mean_queues,
    means,
    rates,
    with_ledger,
)
from tests.crawler.lab.policies.runs import entry_of, ledger_of, run_of


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
    """What a run did after the interval that runs are compared over does not count."""
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
    """What came since the sample before, a second."""
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
