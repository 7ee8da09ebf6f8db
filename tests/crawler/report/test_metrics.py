"""The table of metrics, and the sums over the workers of a job."""

from __future__ import annotations

import json
import re

from anabranch.crawler.report.metrics import METRICS, PHASE, ProcessSums, ended_by_class, is_counter, summed

PAGES, LAG, FREE = "anabranch_pages_total", "anabranch_event_loop_lag_seconds", "anabranch_disk_free_bytes"
QUEUES, LEASES = "anabranch_queues", "anabranch_lease_seconds"


def test_names_follow_the_conventions() -> None:
    """One prefix, snake case; counters, and only they, end in _total."""
    assert all(re.fullmatch(r"anabranch(_[a-z]+)+", name) for name in METRICS)
    assert {name for name in METRICS if is_counter(name)} == {name for name in METRICS if name.endswith("_total")} | {
        LEASES
    }


def test_labels_come_from_small_sets() -> None:
    """None is a host's or a page's, whatever a crawl meets. Services are named by the order, or by a user function."""
    assert {metric.label for metric in METRICS.values()} == {
        "",
        "version",
        "phase",
        "class",
        "state",
        "why",
        "le",
        "service",
        "by",
    }


def test_urls_are_counted_by_the_class_of_their_status() -> None:
    """Failures are one class, and what was not wanted is another; a status that HTTP does not define is other."""
    counts = ended_by_class({200: 3, 204: 1, 301: 2, 404: 1, 500: 1, 999: 1, -2: 4, -4: 1, -9998: 2})
    assert {name: number for name, number in counts.items() if number} == {
        "2xx": 4, "3xx": 2, "4xx": 1, "5xx": 1, "other": 1, "failed": 5, "excluded": 2,
    }  # fmt: skip
    assert ended_by_class({}).keys() == counts.keys()


def test_workers_add_up_and_of_what_is_no_sum_the_worst_counts() -> None:
    """Labels one by one; a worker may lack a number; what is unknown is left out."""
    one = {PAGES: 2, LAG: 0.5, FREE: 10, QUEUES: {"ready": 1, "empty": 2}, "newer_metric": 1}
    other = {PAGES: 3, LAG: 0.1, FREE: 7, QUEUES: {"ready": 4}}
    assert summed([one, other]) == {PAGES: 5, LAG: 0.5, FREE: 7, QUEUES: {"ready": 5, "empty": 2}}
    assert summed([one, {}]) == summed([one])
    assert summed([]) == {}


def test_a_crawl_is_in_the_phase_of_the_worker_that_is_furthest() -> None:
    """A phase is one word, so that exactly one of its series is 1."""
    assert summed([{PHASE: "running"}, {PHASE: "paused"}, {PHASE: "starting"}]) == {PHASE: "paused"}


def test_counters_never_fall_when_a_process_dies() -> None:
    """Its counts stay, and its gauges go; its successor counts from 0."""
    sums = ProcessSums()
    numbers = {1: {PAGES: 5, QUEUES: {"ready": 2}}, 2: {PAGES: 4, QUEUES: {"ready": 1}}}
    assert sums.summed(numbers) == {PAGES: 9, QUEUES: {"ready": 3}}
    del numbers[2]
    assert sums.summed(numbers) == {PAGES: 9, QUEUES: {"ready": 2}}
    assert sums.summed({**numbers, 3: {PAGES: 1, QUEUES: {"ready": 1}}}) == {PAGES: 10, QUEUES: {"ready": 3}}
    assert sums.summed({1: {PAGES: 6}, 2: {PAGES: 4}, 3: {PAGES: 1}}) == {PAGES: 11}  # it was only late


def test_sums_travel_as_json() -> None:
    """They are numbers, numbers by label, and words."""
    total = summed([{PAGES: 1, LEASES: {"0.1": 1, "+Inf": 2, "sum": 0.3}, PHASE: "running"}] * 2)
    assert json.loads(json.dumps(total)) == total
