"""What shares say of themselves, and their sums."""

import json
from collections import Counter
from typing import Any

from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.report.progress import CrawlSnapshot
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.report.summary import RunFacts
from anabranch.crawler.report.troubles import Trouble
from anabranch.crawler.run.summing import (
    frontier_facts,
    frontier_of,
    run_facts,
    snapshot_facts,
    summed_frontier,
    summed_run,
    summed_seeds,
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
    totals=TOTALS,
)  # fmt: skip


def frontier(**more: Any) -> FrontierStatistics:
    plain: dict[str, Any] = dict.fromkeys(FrontierStatistics._fields, 0)
    return FrontierStatistics(**{**plain, "queues": {}, "seen": {}, "why_idle": "", **more})


def share(pages: int, *, status: int = 200, pending: int = 0, seeds: list[SeedFact] | None = None) -> dict[str, Any]:
    """How a share's run was, as it comes out of its message."""
    run = CrawlStatistics(started_s=1.0, pages=pages, fetched_bytes=10 * pages)
    run.by_status = Counter({status: pages})
    run.by_mime = Counter({"text/html": pages})
    facts = RunFacts("job", "ended", 1.0, seeds or [], run, frontier(done=pages, pending=pending))
    said: dict[str, Any] = json.loads(json.dumps(run_facts(facts)))
    return said


def test_runs_add_up() -> None:
    """Counts, statuses and types, though JSON knows no number as a key."""
    total = summed_run([share(3), share(4), share(2, status=404)], 5.0)
    assert (total.pages, total.fetched_bytes, total.started_s) == (9, 90, 5.0)
    assert total.by_status == {200: 7, 404: 2}
    assert total.by_mime == {"text/html": 9}


def test_what_a_process_did_that_has_died_is_part_of_the_run() -> None:
    """It ended no run, and its pages are on disk all the same."""
    total = summed_run([share(3)], 5.0, {"pages": 40, "fetched_bytes": 400})
    assert (total.pages, total.fetched_bytes) == (43, 430)


def test_a_share_is_done_if_it_has_nothing_left() -> None:
    """Whoever ends the job asks for that of all."""
    assert share(3)["is_done"]
    assert not share(3, pending=1)["is_done"]


def test_frontiers_add_up_but_a_probability_does_not() -> None:
    """A URL is asked of one filter: the worst of them is what may befall it. What they may lose is lost by all."""
    shares = [
        frontier(pending=2, queues={"READY": 1}, seen={"false_drop_probability": 0.1, "expected_lost": 1.0}),
        frontier(
            pending=3, queues={"READY": 2, "EMPTY": 1}, seen={"false_drop_probability": 0.3, "expected_lost": 2.0}
        ),
    ]
    total = summed_frontier([frontier_of(json.loads(json.dumps(frontier_facts(share)))) for share in shares])
    assert total.pending == 5
    assert total.queues == {"READY": 3, "EMPTY": 1}
    assert total.seen == {"false_drop_probability": 0.3, "expected_lost": 3.0}


def test_a_job_is_idle_only_if_every_share_is() -> None:
    """One that can fetch is reason enough to say nothing."""
    blocked, throttled = frontier(why_idle="blocked"), frontier(why_idle="a rest")
    assert summed_frontier([blocked, frontier()]).why_idle == ""
    assert summed_frontier([blocked, throttled, blocked]).why_idle == "a rest; blocked"
    assert summed_frontier([blocked, frontier(why_idle="nothing is queued")]).why_idle == "blocked"
    assert summed_frontier([]).why_idle == ""


def test_a_seed_fared_as_its_owner_says() -> None:
    """In the order of the book; of a share that ended in no order nothing is known."""
    here, there = SeedFact("http://a/", 200, "", None), SeedFact("http://b/", 404, "", "http://c/")
    strange = SeedFact("http://b/", 0, "", None)
    shares = {0: share(1, seeds=[here, strange]), 1: share(1, seeds=[there])}
    fared = summed_seeds(shares, {"http://b/": 1, "http://a/": 0, "http://dead/": 2})
    assert fared == [there, here, SeedFact("http://dead/", 0, "", None)]


def test_a_snapshot_of_the_job_is_the_sum_of_its_shares() -> None:
    """The first gate that opens is the job's, and so is the fullest disk; it waits for whatever a share waits for."""
    other = SNAPSHOT._replace(wakes_in_s=3.0, waits_for=WaitsFor.STORE, free_bytes=None, trouble="a full disk")
    said = [json.loads(json.dumps(snapshot_facts(one))) for one in (SNAPSHOT, other)]
    now = summed_snapshot(said, "job", 60.0)
    assert (now.pages, now.workers, now.pending, now.elapsed_s) == (14, 16, 100, 60.0)
    assert (now.wakes_in_s, now.free_bytes) == (3.0, 500)
    assert now.waits_for == WaitsFor.FINISH | WaitsFor.STORE
    assert (now.job, now.trouble, now.paused) == ("job", "a full disk", "")


def test_a_job_is_unanswered_if_all_its_shares_are_and_its_last_trouble_is_the_latest_of_theirs() -> None:
    """One page that was answered, or one URL that was not tried, is somewhere else."""
    troubles = [Trouble(f"http://{name}/", "x", ago_s, False, 1.0) for name, ago_s in (("a", 9.0), ("b", 3.0))]
    shares = [SNAPSHOT._replace(failing=2, last_trouble=trouble) for trouble in (*troubles, None)]

    def summed(**changed: int) -> CrawlSnapshot:
        said = [snapshot_facts(one) for one in (*shares[1:], shares[0]._replace(**changed))]
        return summed_snapshot(json.loads(json.dumps(said)), "job", 60.0)

    assert summed().last_trouble == troubles[1]
    assert [summed(**changed).is_unanswered for changed in ({}, {"untried": 1}, {"answered": 1})] == [
        True,
        False,
        False,
    ]


def test_a_job_that_has_said_nothing_yet_counts_nothing() -> None:
    """Its shares are being opened."""
    now = summed_snapshot([], "job", 1.0)
    assert (now.pages, now.wakes_in_s, now.free_bytes, now.waits_for) == (0, None, None, WaitsFor(0))
