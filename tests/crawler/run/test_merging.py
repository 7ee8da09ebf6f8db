"""Answers of several shares as one."""

from typing import Any

from anabranch.crawler.processes.reporting import merged_report
from anabranch.crawler.run.merging import largest_part, merged_listing, owner_of_subject
from anabranch.frontier.division.ownership import Division


def queue(name: str, urls: int, **more: Any) -> dict[str, Any]:
    return {"queue": name, "urls": urls, "waiting": 0, "in_flight": 1, "spent": 2, "gates": 1, "state": "ready", **more}


def share(*queues: dict[str, Any], why_idle: str = "", **totals: int) -> dict[str, Any]:
    return {"now_s": 5.0, "queues": list(queues), "totals": {**totals, "queues": {"ready": 1}, "why_idle": why_idle}}


def test_queues_of_one_name_are_one() -> None:
    """With a policy by hash each share has a part of it; the larger part says how it stands."""
    one = share(queue("bkdr-1", 3), queue("a", 9), pending=12, done=1)
    other = share(queue("bkdr-1", 8, state="snoozed"), pending=8, done=4)
    listed = merged_listing([one, other], {"limit": 2})
    assert [(row["queue"], row["urls"], row["in_flight"], row["state"]) for row in listed["queues"]] == [
        ("bkdr-1", 11, 2, "snoozed"),
        ("a", 9, 1, "ready"),
    ]
    assert (listed["totals"]["pending"], listed["totals"]["done"], listed["totals"]["queues"]) == (20, 5, {"ready": 2})


def test_a_job_is_idle_if_all_its_shares_are() -> None:
    """One that works is enough."""
    assert merged_listing([share(why_idle="gates"), share()], {"limit": 1})["totals"]["why_idle"] == ""
    assert merged_listing([share(why_idle="gates")] * 2, {"limit": 1})["totals"]["why_idle"] == "gates"
    empty = share(why_idle="nothing is queued")
    assert merged_listing([empty, share(why_idle="gates")], {"limit": 1})["totals"]["why_idle"] == "gates"
    assert merged_listing([empty] * 2, {"limit": 1})["totals"]["why_idle"] == "nothing is queued"


def test_the_share_with_most_of_a_queue_answers() -> None:
    """What it says of the queue is true of its part."""
    assert largest_part([{"queue": {"urls": 1}}, {"queue": {"urls": 5}}])["queue"]["urls"] == 5


def test_questions_about_a_url_or_a_host_go_to_its_owner() -> None:
    """Those about a queue go to all."""
    division = Division(shares=5, share=0)
    owner = division.owner_of("www.example.org")
    assert owner_of_subject(division, "why", {"url": "https://WWW.example.org/a"}) == owner
    assert owner_of_subject(division, "show", {"subject": "https://www.example.org/a"}) == owner
    assert owner_of_subject(division, "block", {"host": "WWW.example.org:80"}) == owner
    assert owner_of_subject(division, "show", {"subject": "bkdr-17"}) is None
    assert owner_of_subject(division, "pause", {"queue": "bkdr-17"}) is None


def table(heads: list[str], *rows: list[Any], more: bool = False) -> dict[str, Any]:
    return {"heads": heads, "rows": [dict(zip(heads, row, strict=True)) for row in rows], "more": more, "widths": []}


def test_counts_are_added_by_what_is_counted() -> None:
    """A status is a name here, not a number; most URLs first."""
    heads = ["#urls", "rescode"]
    merged = merged_report(
        [table(heads, [5, 200], [2, 404]), table(heads, [4, 404])], {"name": "response-codes"}, "job"
    )
    assert merged["rows"] == [{"#urls": 6, "rescode": 404}, {"#urls": 5, "rescode": 200}]


def test_facts_are_added_if_they_are_numbers() -> None:
    """Words are the first share's."""
    merged = merged_report(
        [{"facts": {"URLs": 2, "Name": "a"}}, {"facts": {"URLs": 3, "Name": "b"}}], {"name": "x"}, "job"
    )
    assert merged == {"facts": {"URLs": 5, "Name": "a"}}


def test_other_tables_stand_one_after_another() -> None:
    """As many rows as are wanted."""
    parts = [table(["worker", "uri"], [1, "a"], [2, "b"]), table(["worker", "uri"], [1, "c"])]
    merged = merged_report(parts, {"name": "workers", "limit": 2}, "job")
    assert [row["uri"] for row in merged["rows"]] == ["a", "b"]
    assert merged["more"]


def test_the_summary_names_the_job() -> None:
    """A share's folder has a number for a name."""
    merged = merged_report([{"facts": {"Crawl Name": "0"}}, {"facts": {"Crawl Name": "1"}}], {"name": "x"}, "news")
    assert merged["facts"]["Crawl Name"] == "news"
