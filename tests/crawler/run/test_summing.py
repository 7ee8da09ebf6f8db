"""Facts and answers of several workers as those of their job."""

import json
from collections import Counter
from typing import Any

from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.logtail import Trouble
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.report.summary import RunFacts
from anabranch.crawler.run.summing import (
    joined_rows,
    merged_active,
    merged_listing,
    merged_totals,
    run_facts,
    snapshot_facts,
    summed_filters,
    summed_run,
    summed_snapshot,
)
from anabranch.frontier.inspect.statistics import FrontierStatistics
from anabranch.frontier.records import WaitsFor
from anabranch.frontier.scheduling.lifecycle import QueueState

TOTALS: dict[str, Any] = {
    "pending": 50, "waiting": 5, "in_flight": 4, "done": 7, "failed": 1, "disregarded": 2, "retired": 0, "gates_open": 0,
    "queues": {state.value: 1 for state in QueueState}, "why_idle": "",
}  # fmt: skip
SNAPSHOT = CrawlSnapshot(
    elapsed_s=9.0, pages=7, failed=1, excluded=2, retries=3, fetched_bytes=1000, active=4, workers=8, pending=50,
    waiting=5, gates=6, queues=10, wakes_in_s=None, waits_for=WaitsFor.FINISH, free_bytes=500,
    totals=TOTALS, memory_bytes={"anonymous": 100, "mapped": 30},
)  # fmt: skip


def frontier(**more: Any) -> FrontierStatistics:
    plain: dict[str, Any] = dict.fromkeys(FrontierStatistics._fields, 0)
    return FrontierStatistics(**{**plain, "queues": {}, "seen": {}, "why_idle": "", **more})


def worker(pages: int, *, status: int = 200) -> dict[str, Any]:
    """How a worker's run was, as its parent hears it."""
    run = CrawlStatistics(started_s=1.0, pages=pages, fetched_bytes=10 * pages)
    run.by_status = Counter({status: pages})
    run.by_mime = Counter({"text/html": pages})
    run.sitemap_faults = Counter(sitemaps=1, tags=pages)
    facts = RunFacts("job", "ended", 1.0, [], run, frontier(done=pages))
    said: dict[str, Any] = json.loads(json.dumps(run_facts(facts)))
    return said


def test_runs_add_up() -> None:
    """Counts, statuses and types, though JSON knows no number as a key."""
    total = summed_run([worker(3), worker(4), worker(2, status=404)], 5.0, {})
    assert (total.pages, total.fetched_bytes, total.started_s) == (9, 90, 5.0)
    assert total.by_status == {200: 7, 404: 2}
    assert total.by_mime == {"text/html": 9}
    assert total.sitemap_faults == {"sitemaps": 3, "tags": 9}


def test_a_worker_of_an_earlier_version_says_nothing_of_sitemaps() -> None:
    """Its counts add up all the same."""
    earlier = worker(3)
    del earlier["sitemap_faults"]
    assert summed_run([earlier, worker(4)], 5.0, {}).sitemap_faults == {"sitemaps": 1, "tags": 4}


def test_what_a_process_did_that_has_died_is_part_of_the_run() -> None:
    """It ended no run, and the job's rows have its pages all the same."""
    total = summed_run([worker(3)], 5.0, {"pages": 43, "fetched_bytes": 430})
    assert (total.pages, total.fetched_bytes) == (43, 430)
    assert total.by_status == {200: 3}


def test_filters_add_up_but_a_probability_does_not() -> None:
    """A URL is asked of one filter: the worst of them is what may befall it. What they may lose is lost by all."""
    filters = [
        {"false_drop_probability": 0.1, "expected_lost": 1.0},
        {"false_drop_probability": 0.3, "expected_lost": 2.0},
        None,
    ]
    assert summed_filters(filters) == {"false_drop_probability": 0.3, "expected_lost": 3.0}


def test_the_counts_of_all_workers_are_whole_since_the_latest_of_their_times() -> None:
    """An earlier one would claim counts that a killed worker has lost."""
    since = ["2026-11-28T10:00:00+00:00", "2026-11-28T12:00:00+00:00", "2026-11-28T11:00:00+00:00"]
    summed = summed_filters({"recent_known": 1, "counted_since": one} for one in since)
    assert summed == {"recent_known": 3, "counted_since": since[1]}


def test_a_snapshot_of_the_job_is_the_sum_of_its_workers() -> None:
    """The first gate that opens is the job's, and so is the fullest disk; it waits for whatever a worker waits for."""
    other = SNAPSHOT._replace(wakes_in_s=3.0, waits_for=WaitsFor.STORE, free_bytes=None, trouble="a full disk")
    said = [json.loads(json.dumps(snapshot_facts(one))) for one in (SNAPSHOT, other)]
    now = summed_snapshot(said, "job", 60.0)
    assert (now.pages, now.workers, now.pending, now.elapsed_s) == (14, 16, 100, 60.0)
    assert (now.wakes_in_s, now.free_bytes) == (3.0, 500)
    assert now.waits_for == WaitsFor.FINISH | WaitsFor.STORE
    assert (now.job, now.trouble, now.paused) == ("job", "a full disk", "")
    assert now.memory_bytes == {"anonymous": 200, "mapped": 60}
    unknown = [{**one, "memory_bytes": None} for one in said]
    assert summed_snapshot(unknown, "job", 60.0).memory_bytes is None
    assert summed_snapshot([said[0], unknown[1]], "job", 60.0).memory_bytes == {"anonymous": 100, "mapped": 30}


def test_a_job_is_unanswered_if_all_its_workers_are_and_its_last_trouble_is_the_latest_of_theirs() -> None:
    """One page that was answered, or one URL that was not tried, is somewhere else."""
    troubles = [Trouble(f"http://{name}/", "x", ago_s, False, 1.0) for name, ago_s in (("a", 9.0), ("b", 3.0))]
    workers = [SNAPSHOT._replace(failing=2, last_trouble=trouble) for trouble in (*troubles, None)]

    def summed(**changed: int) -> CrawlSnapshot:
        said = [snapshot_facts(one) for one in (*workers[1:], workers[0]._replace(**changed))]
        return summed_snapshot(json.loads(json.dumps(said)), "job", 60.0)

    assert summed().last_trouble == troubles[1]
    assert [summed(**changed).is_unanswered for changed in ({}, {"untried": 1}, {"answered": 1})] == [
        True,
        False,
        False,
    ]


def queue(name: str, urls: int, state: str = "inactive") -> dict[str, Any]:
    return {"queue": name, "urls": urls, "state": state}


def said(*queues: dict[str, Any], why_idle: str = "", **states: int) -> dict[str, Any]:
    """By one worker: the totals are the job's, what is in memory its own."""
    totals = {"pending": 12, "in_flight": 1, "gates_open": 2, "queues": states, "why_idle": why_idle}
    return {"now_s": 5.0, "queues": list(queues), "totals": totals}


def test_a_queue_is_as_the_worker_sees_it_that_holds_it() -> None:
    """The others see its rows alone."""
    one = said(queue("1/a", 3, "ready"), queue("2/b", 8))
    other = said(queue("1/a", 3), queue("2/b", 8, "in-flight"))
    listed = merged_listing([one, other], {"limit": 2})
    assert [(row["queue"], row["state"]) for row in listed["queues"]] == [("2/b", "in-flight"), ("1/a", "ready")]


def test_fetches_under_way_are_summed() -> None:
    """A queue in the memory of several workers is in the strongest of its states."""
    one = {"now_s": 1.0, "queues": [["a", "ready", 0], ["b", "in-flight", 2]], "gates": [["a.test", 0.0, 1]]}
    other = {"now_s": 2.0, "queues": [["b", "ready", 1], ["a", "loading", 0]], "gates": [["b.test", None, 0]]}
    assert merged_active([one, other], 3.0) == {
        "now_s": 3.0,
        "queues": [["a", "ready", 0], ["b", "in-flight", 3]],
        "gates": [["a.test", 0.0, 1], ["b.test", None, 0]],
    }


def test_totals_are_the_jobs_and_what_is_in_memory_is_added() -> None:
    """A queue that another worker has in memory is inactive for who does not hold it."""
    totals = merged_totals([said(ready=2, inactive=8)["totals"], said(ready=3, inactive=7)["totals"]])
    assert (totals["pending"], totals["in_flight"], totals["gates_open"]) == (12, 2, 4)
    assert (totals["queues"]["ready"], totals["queues"]["inactive"]) == (5, 5)


def test_a_job_is_idle_if_all_its_workers_are() -> None:
    """One that works is enough."""
    assert merged_totals([said(why_idle="gates")["totals"], said()["totals"]])["why_idle"] == ""
    assert merged_totals([said(why_idle=why)["totals"] for why in ("b", "a", "b")])["why_idle"] == "a; b"


def test_rows_of_all_workers_stand_one_after_another() -> None:
    """At most as many rows as asked for are returned; facts by name are those of the first worker."""
    tables = [{"heads": ["a"], "rows": [{"a": number}], "more": False} for number in (1, 2)]
    assert joined_rows(tables, 9)["rows"] == [{"a": 1}, {"a": 2}]
    assert joined_rows(tables, 1)["more"]
    assert joined_rows([{"facts": {"x": 1}}, {"facts": {"x": 2}}], 9) == {"facts": {"x": 1}}
