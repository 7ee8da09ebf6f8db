"""The comparison of real crawls: what is owed to hosts, and how far it is."""

from __future__ import annotations

from anabranch.crawler.lab.policies.compare import _Course
from anabranch.crawler.lab.policies.options import PolicyOptions, rule_of
from anabranch.crawler.lab.policies.series import Sample
from anabranch.crawler.lab.web.ledger import Rule


def test_hosts_are_owed_the_order_s_delays_and_slots() -> None:
    """What the crawler is told is what the server holds it to."""
    assert rule_of(PolicyOptions(connections=8)) == Rule(slots=8, delay_factor=5.0, min_delay_s=0.05, max_delay_s=0.5)


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
