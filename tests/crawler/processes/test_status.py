"""How a job of several processes is doing."""

from types import SimpleNamespace
from typing import Any, cast

from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.processes.limits import JobLimits
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.processes.status import JobStatus
from anabranch.crawler.report.troubles import Trouble
from anabranch.crawler.run.run_state import Phase
from anabranch.crawler.run.summing import snapshot_facts
from tests.crawler.run.test_summing import SNAPSHOT, TOTALS
from tests.status_schema import checked


class Job:
    """A job of two shares, the time of which the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        ready = {1: SimpleNamespace(pid=11), 0: SimpleNamespace(pid=10)}
        self.shares = SimpleNamespace(ready=ready, ending=None)
        self.limits = SimpleNamespace(words="")
        shares, limits = cast("Shares", self.shares), cast("JobLimits", self.limits)
        self.status = JobStatus(shares, limits, "job", lambda: self.now_s)


def opened(done: int, **more: int) -> dict[str, Any]:
    """What a share has when it is opened."""
    return {"pending": 1, "done": done, "failed": 0, "disregarded": 0, "retired": 0, "bytes": 10 * done, **more}


def said(pages: int, paused: str = "") -> dict[str, Any]:
    now = SNAPSHOT._replace(pages=pages, fetched_bytes=10 * pages, failed=0, excluded=0, paused=paused)
    return snapshot_facts(now)


def test_the_last_word_of_each_share_counts() -> None:
    """Shares speak when they like; the time is the job's own."""
    job = Job()
    for share, pages in ((0, 3), (1, 4), (0, 5)):
        job.status.take(share, said(pages))
    job.now_s = 160.0
    now = job.status.snapshot()
    assert (now.pages, now.elapsed_s) == (9, 60.0)


def test_pages_of_a_process_that_died_stay_counted() -> None:
    """As far as they are on disk, which the next process of the share says; what was fetched again counts once."""
    job = Job()
    job.status.begin(0, opened(100))
    job.status.begin(1, opened(200))
    job.status.take(0, said(33))
    job.status.take(1, said(4))
    job.status.begin(0, opened(130))
    assert job.status.snapshot().pages == 30 + 4
    job.status.take(0, said(2))
    now = job.status.snapshot()
    assert (now.pages, now.fetched_bytes) == (36, 360)
    job.status.begin(0, opened(132, failed=1))
    assert job.status.died == {"pages": 32, "failed": 1, "excluded": 0, "fetched_bytes": 320}


def test_a_job_begins_with_what_its_shares_had_at_first() -> None:
    """A share that is opened again is no news for the line that a run begins with."""
    job = Job()
    for share, done in ((0, 100), (1, 200), (0, 130)):
        job.status.begin(share, opened(done))
    assert (job.status.counts.done, job.status.counts.pending) == (300, 2)


def test_the_phase_is_the_jobs() -> None:
    """Starting until a share speaks; paused for all or for none; the end is the end, paused or not."""
    job = Job()
    assert job.status.phase is Phase.STARTING
    job.status.take(0, said(1))
    assert job.status.phase is Phase.RUNNING
    job.limits.words = "paused by the operator"
    assert job.status.phase is Phase.PAUSED
    assert job.status.snapshot().paused == "paused by the operator"
    job.shares.ending = WhyEnded.OPERATOR
    assert job.status.phase is Phase.DRAINING


def test_what_a_share_said_of_a_pause_that_is_over_counts_no_more() -> None:
    """Its last snapshot is older than the operator's word."""
    job = Job()
    job.status.take(0, said(1, paused="paused by the operator"))
    assert (job.status.phase, job.status.snapshot().paused) == (Phase.RUNNING, "")


def test_a_share_without_room_on_its_disk_is_a_pause() -> None:
    """It pauses by itself; its parent says so, and no more than that."""
    job = Job()
    no_room = "paused: 3.0 MiB are free at job, min_free_disk is 1.0 GB"
    job.status.take(0, said(1))
    job.status.take(1, said(1, paused=f"paused by the operator; {no_room}"))
    assert (job.status.phase, job.status.facts()["paused"]) == (Phase.PAUSED, no_room)


def test_the_facts_name_every_process() -> None:
    """So that an operator can look at one."""
    job = Job()
    job.status.take(0, said(1))
    facts = checked(job.status.facts())
    assert facts["processes"] == {"0": 10, "1": 11}
    assert (facts["phase"], facts["waits_for"], facts["pages"]) == ("running", "FINISH", 1)


def test_the_status_has_the_shape_of_that_of_one_process() -> None:
    """Before any share has spoken, too; what shares know of a filter in common is added up."""
    job = Job()
    first = checked(job.status.facts())
    job.status.take(0, said(1))
    more = SNAPSHOT._replace(shared_left=3, shared_twice=2, last_trouble=Trouble("http://a/", "x", 1.0, False, None))
    job.status.take(1, snapshot_facts(more))
    facts = checked(job.status.facts())
    assert tuple(facts) == tuple(first)
    assert (first["totals"], facts["totals"]["pending"]) == (None, 2 * TOTALS["pending"])
    assert (facts["shared_left"], facts["shared_twice"], facts["last_trouble"]["url"]) == (3, 2, "http://a/")
