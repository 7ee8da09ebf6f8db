"""The status of a stopped job, from its files alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.state import is_finished
from anabranch.crawler.operate import job as operated_job
from anabranch.crawler.operate.job import Job
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.report.jobstatus import status_as_left, undisturbed
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE
from anabranch.crawler.run.verbs import answer
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.jobfolder import FORMAT_FILE, ORDER_FILE, STORE_FILE, format_text
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind
from tests.acceptance.command import SMALL_FILTER
from tests.facts_schema import checked

ORDER = CrawlOrder.model_validate(
    {"politeness": {"min_delay": "0s", "max_delay": "0s"}, "frontier": {"policy": "host"}, "dedup": SMALL_FILTER}
)
#: Totals that rows tell; a Frontier knows besides in which state each queue is, and which gates are open.
KNOWN = ("pending", "waiting", "in_flight", "done", "failed", "disregarded", "retired")
HOSTS = ("a.test", "b.test", "c.test")


class Logged(NamedTuple):
    """The part of a journal entry that the accounts read."""

    crawl_log: bytes | None


def crawled(frontier: Frontier, ends: list[tuple[OutcomeKind, int]], retired: str, *, leased: int) -> None:
    """Queue URLs, end some leases in these ways, retire a queue, and lose the last leases with the process."""
    frontier.schedule([Candidate(f"http://{host}/{number}") for host in HOSTS for number in range(3)])
    frontier.flush()
    for kind, status in [*ends, *[(OutcomeKind.DONE, 0)] * leased]:
        while (lease := frontier.lease()) is None:
            frontier.flush()
        now_s = frontier.now_s()
        if status:
            frontier.finish(lease, Outcome(kind, status, now_s, now_s, after_s=100.0))
    if retired:
        answer(frontier, "retire", {"queue": retired})
    frontier.flush()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was begun, and has no queue yet."""
    with JobFolder.open(tmp_path_factory.mktemp("empty") / "news") as folder:
        folder.write_order(dump_order(ORDER))
    return folder.directory


@pytest.fixture(scope="module")
def made(empty: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was stopped in order, after one page and one failure. No test changes it."""
    job = shutil.copytree(empty, tmp_path_factory.mktemp("made") / "news")
    with JobFolder.open(job), open_job(job / "state", ORDER) as frontier:
        crawled(frontier, [(OutcomeKind.DONE, 200), (OutcomeKind.FAILED, -1)], "", leased=0)
    accounts = Accounts(job / "state", job / "logs" / "crawl.log", lambda: 0.0)
    line = CrawlLogEntry(logged_s=0.0, status=200, size_bytes=700, url="http://a.test/0", mime="a/b", worker=1)
    accounts.append([Logged(crawl_log_line(line))])
    accounts.keep()
    accounts.close()
    return job


@pytest.fixture
def job(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "news")


ENDS = st.sampled_from(
    (
        (OutcomeKind.DONE, 200),
        (OutcomeKind.FAILED, -1),
        (OutcomeKind.FAILED, 503),
        (OutcomeKind.DISREGARDED, -9998),
        (OutcomeKind.RETRY, -2),
    )
)


@given(ends=st.lists(ENDS, max_size=4), retired=st.sampled_from(["", *HOSTS]), leased=st.integers(0, 2))
@settings(max_examples=8, deadline=None)
def test_a_killed_job_has_the_totals_of_its_opened_frontier(
    empty: Path,
    tmp_path_factory: pytest.TempPathFactory,
    ends: list[tuple[OutcomeKind, int]],
    retired: str,
    leased: int,
) -> None:
    """Its log has the last transactions; a URL that was leased is queued."""
    place = tmp_path_factory.mktemp("killed")
    running, killed = shutil.copytree(empty, place / "running"), place / "killed"
    with open_job(running / "state", ORDER) as frontier:
        crawled(frontier, ends, retired, leased=leased)
        shutil.copytree(running, killed)  # as SIGKILL leaves it
    assert (killed / "state" / f"{STORE_FILE}-wal").stat().st_size
    facts = status_as_left(killed, 0.0)
    assert facts is not None
    with open_job(killed / "state", ORDER) as frontier:
        opened = answer(frontier, "ls", {"limit": 0})["totals"]
        failures = frontier.operations.failures()
        is_done = frontier.is_done
    assert {name: facts["totals"][name] for name in KNOWN} == {name: opened[name] for name in KNOWN}
    assert facts["queues"] == sum(opened["queues"].values())
    assert {row["status"]: row["count"] for row in facts["failures"]} == failures
    assert facts["is_finished"] == (is_done and not opened["retired"])


def test_the_status_of_a_stopped_job_opens_no_frontier(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its form is that of every status; queues are inactive, and the filter is not asked."""
    monkeypatch.delattr(operated_job, "opened")
    (job / "logs" / PROGRESS_LOG_FILE).write_text("2026-11-20T11:22:34Z CRAWL ENDED - stopped by a signal\n")
    facts = checked(Job(job).status())
    assert (facts["phase"], facts["line"], facts["is_finished"]) == ("stopped", "stopped by a signal", False)
    assert (facts["pages"], facts["failed"], facts["pending"], facts["fetched_bytes"]) == (1, 1, 7, 700)
    assert [(row["status"], row["count"]) for row in facts["failures"]] == [(-1, 1)]
    assert (facts["totals"]["queues"]["inactive"], facts["filter"]) == (3, {})


def test_nothing_is_written_to_a_stopped_or_killed_job(job: Path, made: Path, tmp_path: Path) -> None:
    """So a medium that cannot be written is no hindrance, and a job that has finished stays so."""
    killed = tmp_path / "killed"
    with open_job(job / "state", ORDER) as frontier:
        frontier.schedule([Candidate("http://d.test/")])
        frontier.flush()
        shutil.copytree(job, killed)
    finished = shutil.copytree(made, tmp_path / "finished")
    (finished / "state" / "finished").touch()
    for place in (killed, finished):
        before = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in place.rglob("*") if file.is_file()}
        assert status_as_left(place, 0.0) is not None
        assert {
            file: (file.stat().st_mtime_ns, file.stat().st_size) for file in place.rglob("*") if file.is_file()
        } == before
    assert is_finished(finished / "state")


def test_several_commands_look_at_once_and_none_waits(job: Path) -> None:
    """Each holds the lock in common with the others."""
    with JobFolder.open(job):
        assert status_as_left(job, 0.0) is None
    with undisturbed(job) as is_free:
        assert is_free
        assert status_as_left(job, 0.0) is not None


def _edit_order(job: Path) -> None:
    with (job / ORDER_FILE).open("a") as file:
        file.write("# edited\n")


def _write_order(job: Path, **frontier: object) -> None:
    with JobFolder.open(job) as folder:
        folder.write_order(dump_order(CrawlOrder.model_validate({"frontier": frontier})))


def _set_format(job: Path) -> None:
    with closing(sqlite3.connect(job / "state" / STORE_FILE)) as store, store:
        store.execute("UPDATE crawl SET value = '6' WHERE name = 'format'")


def _older_folder(job: Path) -> None:
    (job / "state" / FORMAT_FILE).write_text(json.dumps({"format": "anabranch job", "version": 1}))


def _touch(name: str) -> Callable[[Path], object]:
    return lambda job: (job / "state" / name).write_text("2")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_edit_order, id="its order was edited"),
        pytest.param(lambda job: (job / ORDER_FILE).unlink(), id="its order is missing"),
        pytest.param(lambda job: (job / "state" / ORDER_FILE).write_text("x"), id="the copy of its order is damaged"),
        pytest.param(lambda job: _write_order(job, store="postgresql://db/news"), id="its queue is in a database"),
        pytest.param(lambda job: _write_order(job, store="memory"), id="its queue was in memory"),
        pytest.param(lambda job: _write_order(job, shares=16), id="several workers share it"),
        pytest.param(_older_folder, id="its folder has an older format"),
        pytest.param(_set_format, id="its store has an older format"),
        pytest.param(
            lambda job: (job / "state" / FORMAT_FILE).write_bytes(format_text(embedded=True)), id="a program has it"
        ),
        pytest.param(lambda job: (job / "state" / STORE_FILE).unlink(), id="its store is missing"),
        pytest.param(lambda job: (job / "state" / STORE_FILE).write_bytes(b"x" * 5000), id="its store is damaged"),
        pytest.param(lambda job: (job / "state" / "lock").unlink(), id="its lock is missing"),
        *[
            pytest.param(_touch(name), id=name)
            for name in ("again", "fresh", "queue-in-memory", "moved.json", "arrives.json", "processes", "dividing")
        ],
    ],
)
def test_what_only_an_opening_can_tell_is_left_to_it(job: Path, change: Callable[[Path], object]) -> None:
    """No file is trusted that another version wrote, or that an edit, a move or a kill may have made wrong."""
    assert status_as_left(job, 0.0) is not None
    change(job)
    assert status_as_left(job, 0.0) is None


def test_the_folder_of_a_worker_is_no_job_of_its_own(job: Path) -> None:
    """Its job is named instead, by whoever opens it."""
    worker = shutil.copytree(job, job / "workers" / "1")
    assert status_as_left(worker, 0.0) is None


def test_a_folder_without_a_job_has_no_status(tmp_path: Path) -> None:
    """Nothing is made in it."""
    assert status_as_left(tmp_path, 0.0) is None
    assert not list(tmp_path.iterdir())
