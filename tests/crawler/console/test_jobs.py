"""The jobs of a console."""

from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.operate.databasejob import DatabaseJob


def test_counters_of_several_workers_do_not_fall_when_one_leaves(tmp_path, monkeypatch) -> None:
    """They begin anew with the next run."""
    pages = "anabranch_pages_total"
    looks = iter([{("a", 1): {pages: 5}, ("a", 2): {pages: 7}}, {("a", 2): {pages: 8}}, {}, {("a", 3): {pages: 1}}])
    jobs = ConsoleJobs(str(tmp_path))
    monkeypatch.setattr(jobs, "job", lambda _: DatabaseJob("postgresql://db/x", print))
    monkeypatch.setattr(DatabaseJob, "worker_metrics", lambda _: next(looks))
    assert jobs.metrics("x") == {pages: 12}
    assert jobs.metrics("x") == {pages: 13}
    assert jobs.metrics("x") is None
    assert jobs.metrics("x") == {pages: 1}
