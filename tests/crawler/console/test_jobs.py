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


def test_an_order_without_a_contact_is_no_fault_and_is_warned_of(tmp_path) -> None:
    """As a crawl warns, before it begins; a whole User-Agent is contact enough."""
    jobs = ConsoleJobs(str(tmp_path))
    warning = "no contact is configured, site owners cannot reach you; give [agent] contact"
    assert jobs.faults("news", '[agent]\ncontact = ""') == ((), warning)
    assert jobs.faults("news", '[agent]\ncontact = "https://example.org/bot"') == ((), "")
    assert jobs.faults("news", '[agent]\nuser_agent = "anabranch by me"') == ((), "")
