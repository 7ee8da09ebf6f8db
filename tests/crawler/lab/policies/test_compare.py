"""The comparison of real crawls: what is owed to hosts, and what the ledger adds to a run."""

from __future__ import annotations

from crawler.lab.policies.compare import _Course, rule_of, with_ledger
from crawler.lab.policies.options import PolicyOptions
from crawler.lab.policies.series import Busy, HostSeen, Sample
from crawler.lab.web.ledger import HostEntry, Ledger, Rule
from tests.crawler.lab.policies.runs import run_of


def entry_of(host: str, **more) -> HostEntry:
    facts = {
        "host": host,
        "requests": 9,
        "most_at_once": 2,
        "shortest_gap_s": 0.05,
        "shortest_start_gap_s": 0.1,
        "starts_per_s": 3.0,
        "size_bytes": 900,
        "gone": 0,
        "crawl_delay_s": None,
        "too_many": 0,
        "too_early": 0,
    }
    return HostEntry(**(facts | more))


def ledger_of(*hosts: HostEntry) -> Ledger:
    return Ledger(rule=Rule(), hosts=hosts, strangers=0, wall_s=10.0, cpu_s=2.0, longest_lag_s=0.03)


def test_hosts_are_owed_the_order_s_delays_and_slots() -> None:
    """What the crawler is told is what the server holds it to."""
    assert rule_of(PolicyOptions(connections=8)) == Rule(slots=8, delay_factor=5.0, min_delay_s=0.05, max_delay_s=0.5)


def test_a_run_has_what_the_server_saw() -> None:
    """Hosts, verdict, and how busy the server was."""
    run = with_ledger(run_of(), ledger_of(entry_of("a.test")))
    assert run.hosts == (HostSeen("a.test", 9, 2, 0.05, 3.0),)
    assert run.is_polite
    assert run.verdict.startswith("kept on 1 hosts")
    assert run.server == Busy(0.2, 0.03)


def test_a_broken_rule_makes_a_run_impolite() -> None:
    """The verdict says where."""
    run = with_ledger(run_of(), ledger_of(entry_of("a.test", too_many=1), entry_of("b.test")))
    assert not run.is_polite
    assert "a.test" in run.verdict


def test_progress_is_seconds_of_all_runs() -> None:
    """A run that is drained early counts as whole; the rate is that of the second before."""
    told: list[tuple[int, int, str]] = []
    course = _Course(PolicyOptions(policies=("host", "surt"), seconds=10.0), lambda *step: told.append(step))
    with course.of_run("five portals, host") as heard:
        heard(Sample(0.0, 0, 0, 0, 0, 0, 0, 0))
        heard(Sample(2.0, 14, 9, 0, 0, 0, 30, 0))
    with course.of_run("five portals, surt") as heard:
        heard(Sample(8.0, 0, 0, 0, 0, 0, 0, 0))
        heard(Sample(12.0, 4, 1, 0, 0, 0, 20, 0))
    assert told == [
        (0, 20, "five portals, host begins"),
        (2, 20, "five portals, host: 7 active workers, 15 URLs/s"),
        (10, 20, "five portals, surt begins"),
        (20, 20, "five portals, surt: 1 active workers, 5 URLs/s"),
    ]
