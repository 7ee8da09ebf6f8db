"""The text that Prometheus reads, as its own client library parses it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from anabranch.crawler.report.exposition import exposition
from anabranch.crawler.report.metrics import BUILD, METRICS, PHASE, of_resting


def samples(jobs):
    """(name, labels) -> value."""
    families = text_string_to_metric_families(exposition(jobs).decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def test_jobs_share_a_family_and_differ_by_their_label() -> None:
    """A job that lacks a number has no sample."""
    found = samples({"a": {"anabranch_pages_total": 3, "anabranch_gates": 2}, "b": {"anabranch_pages_total": 4}})
    assert found == {
        ("anabranch_up", (("job", "a"),)): 1,
        ("anabranch_up", (("job", "b"),)): 1,
        ("anabranch_pages_total", (("job", "a"),)): 3,
        ("anabranch_pages_total", (("job", "b"),)): 4,
        ("anabranch_gates", (("job", "a"),)): 2,
    }


def test_a_phase_is_one_series_for_each_and_the_version_is_a_label() -> None:
    """Exactly one phase is 1."""
    found = samples({"a": {PHASE: "paused", BUILD: "1.2"}})
    assert {labels[1][1]: value for (name, labels), value in found.items() if name == PHASE} == {
        "draining": 0, "paused": 1, "waiting": 0, "running": 0, "starting": 0,
    }  # fmt: skip
    assert found[BUILD, (("job", "a"), ("version", "1.2"))] == 1


def test_leases_are_a_histogram() -> None:
    """With the bucket of all, the count and the sum."""
    found = samples({"a": {"anabranch_lease_seconds": {"0.1": 1, "+Inf": 3, "sum": 2.5}}})
    assert found == {
        ("anabranch_up", (("job", "a"),)): 1,
        ("anabranch_lease_seconds_bucket", (("job", "a"), ("le", "0.1"))): 1,
        ("anabranch_lease_seconds_bucket", (("job", "a"), ("le", "+Inf"))): 3,
        ("anabranch_lease_seconds_count", (("job", "a"),)): 3,
        ("anabranch_lease_seconds_sum", (("job", "a"),)): 2.5,
    }


def test_a_jobs_name_may_have_any_character() -> None:
    """It is escaped, so that it ends no label."""
    assert ("anabranch_gates", (("job", 'a"b\\c\nd'),)) in samples({'a"b\\c\nd': {"anabranch_gates": 1}})


def test_a_job_that_does_not_answer_is_not_up() -> None:
    """It has no other number, and the others have theirs."""
    found = samples({"a": None, "b": {"anabranch_gates": 1}})
    assert found == {
        ("anabranch_up", (("job", "a"),)): 0,
        ("anabranch_up", (("job", "b"),)): 1,
        ("anabranch_gates", (("job", "b"),)): 1,
    }


def test_each_family_has_its_meaning_and_type() -> None:
    """Both come from the table of metrics."""
    texts = exposition({"a": {"anabranch_pages_total": 1, "anabranch_gates": 1}}).decode()
    assert f"# HELP anabranch_pages_total {METRICS['anabranch_pages_total'].meaning}\n" in texts
    assert "# TYPE anabranch_pages_total counter\n" in texts
    assert "# TYPE anabranch_gates gauge\n" in texts


def test_without_jobs_there_is_no_text() -> None:
    """That is a good answer, too."""
    assert exposition({}) == b""


def test_a_job_that_nobody_crawls_has_its_state() -> None:
    """What is wanted, what is, why it ended, and when; it is not up if it should run, and else says nothing of that."""
    ended = {"why": "killed", "words": "", "time_s": 1.8e9}
    killed = of_resting({"state": "killed", "desired_state": "run", "ended": ended})
    found = samples({"a": killed, "b": of_resting({"state": "stopped", "desired_state": "stopped", "ended": None})})
    assert {one: value for one, value in found.items() if value} == {
        ("anabranch_job_state", (("job", "a"), ("state", "killed"))): 1,
        ("anabranch_job_state", (("job", "b"), ("state", "stopped"))): 1,
        ("anabranch_job_desired_state", (("job", "a"), ("state", "run"))): 1,
        ("anabranch_job_desired_state", (("job", "b"), ("state", "stopped"))): 1,
        ("anabranch_job_ended", (("job", "a"), ("why", "killed"))): 1,
        ("anabranch_job_ended_seconds", (("job", "a"),)): 1.8e9,
    }
    assert [value for (name, _), value in found.items() if name == "anabranch_up"] == [0]
