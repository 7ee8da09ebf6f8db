"""The rows of a list of jobs."""

import json
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from anabranch.crawler.cluster.agreement import Applicant, Wanted, join
from anabranch.crawler.job.database import JobDatabase
from anabranch.crawler.job.folder import JobFolder, end_wish, move_aside
from anabranch.crawler.job.frontier import open_job, open_share_holder
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.state import FAILED, run_record
from anabranch.crawler.operate.finding import operated
from anabranch.crawler.operate.listing import job_folders, listed, listed_databases, listed_jobs
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE
from anabranch.crawler.report.progress_log import LEGEND
from anabranch.crawler.run.run_state import RunNote
from anabranch.dedup.files.durable import checked_line
from anabranch.frontier.jobfolder import STATE, STORE_FILE
from anabranch.frontier.records import Candidate
from anabranch.frontier.stores.sql.worker import WorkerIdentity
from scripts.postgres_server import administer
from tests.facts_schema import checked
from tests.patience import HANG_S
from tests.postgres_server import server

LINE = " ".join(
    ["2026-11-20T11:22:33Z", "1010", "800", "205", "5.00(4.50)", "10(9)", "5", "12", "1000", "2000", "2.00", "40", "10"]
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job that was made, and that nobody has crawled."""
    with JobFolder.open(tmp_path / "news") as folder:
        folder.write_order(dump_order(CrawlOrder()))
    return tmp_path / "news"


def test_a_job_that_has_not_begun(job: Path) -> None:
    """Says so."""
    row = checked(listed(job), "JobRow")
    assert (row["job"], row["phase"], row["line"], row["pages"]) == ("news", "stopped", "not started yet", 0)


def test_a_stopped_job_has_the_numbers_of_its_logs(job: Path) -> None:
    """The last whole line of its statistics, and why it ended; nothing is opened."""
    log = job / "logs" / "progress-statistics.log"
    log.write_text(f"{LEGEND}\n{LINE}\n2026-11-20T11:22:34Z CRAWL ENDED - stopped\n2026-11-20T11:22:")
    row = checked(listed(job), "JobRow")
    assert (row["pages"], row["queued"], row["failed"], row["pages_per_s"]) == (205, 800, 5, 0)
    assert row["line"] == "stopped"
    with log.open("a") as file:
        file.write(f"33Z CRAWL RUNNING - crawling\n{LINE}\n")
    assert listed(job)["line"] == "not running"  # it was killed


def test_a_job_that_is_held_is_unknown(job: Path) -> None:
    """It is being opened, closed or changed."""
    with JobFolder.open(job):
        assert checked(listed(job), "JobRow")["phase"] == "unknown"


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("state/format.json", json.dumps({"format": "anabranch job", "version": 999}), "by a newer version"),
        ("state/format.json", "{", "cannot be read"),
        ("order.toml", "[", "not TOML"),
    ],
)
def test_a_job_that_cannot_be_read_does_not_break_the_list(job: Path, file: str, text: str, line: str) -> None:
    """It is unknown, with the reason."""
    JobFolder.open(job.with_name("other")).close()
    (job / file).write_text(text)
    rows = [checked(row, "JobRow") for row in listed_jobs(job.parent)]
    assert [(row["job"], row["phase"]) for row in rows] == [("news", "unknown"), ("other", "stopped")]
    assert line in rows[0]["line"]


def test_the_jobs_of_a_folder_are_in_order(job: Path) -> None:
    """Files, other folders and jobs that were moved aside are left out; a folder that does not exist has no jobs."""
    JobFolder.open(job.with_name("archive")).close()
    (job.parent / "file").touch()
    (job.parent / "empty").mkdir()
    JobFolder.open(job.with_name("old")).close()
    moved = move_aside(job.with_name("old"), 0.0)
    assert moved is not None
    assert [found.name for found in job_folders(job.parent)] == ["archive", "news"]
    assert job_folders(job) == [job]
    assert job_folders(job.parent / "nosuch") == []


@pytest.mark.parametrize("lines", [(), (LEGEND, LINE)])
def test_a_crawl_that_was_killed_has_the_totals_of_its_store(job: Path, lines: Sequence[str]) -> None:
    """The log has those of an earlier moment, or none yet; the store is not opened, as a later crawl will do."""
    killed = job.with_name("killed")
    with open_job(job / "state", CrawlOrder()) as frontier:
        frontier.schedule([Candidate(f"http://a.test/{number}") for number in range(3)])
        frontier.flush()
        shutil.copytree(job, killed)  # as SIGKILL leaves it
    log = killed / "logs" / PROGRESS_LOG_FILE
    log.write_text("".join(f"{line}\n" for line in lines))
    before = {file: file.stat().st_mtime_ns for file in (killed / "state").iterdir()}
    row = checked(listed(killed), "JobRow")
    assert (row["pages"], row["queued"], row["line"]) == (0, 3, "not running")
    assert {file: file.stat().st_mtime_ns for file in (killed / "state").iterdir()}.items() >= before.items()


def test_a_store_that_a_process_holds_is_not_waited_for(job: Path) -> None:
    """It would be locked: the row of a job that does not answer comes from its log."""
    (job / "logs" / PROGRESS_LOG_FILE).write_text(f"{LEGEND}\n{LINE}\n")
    with JobFolder.open(job), open_job(job / "state", CrawlOrder()):
        row = checked(listed(job), "JobRow")
    assert (row["phase"], row["queued"]) == ("unknown", 800)


def test_a_store_of_another_format_is_not_counted(job: Path) -> None:
    """It may lack a count, or mean another thing by it: the log tells."""
    with open_job(job / "state", CrawlOrder()):
        pass
    with closing(sqlite3.connect(job / "state" / STORE_FILE)) as store, store:
        store.execute("UPDATE crawl SET value = '1' WHERE name = 'format'")
        store.execute("DELETE FROM crawl WHERE name = 'paused'")
    (job / "logs" / PROGRESS_LOG_FILE).write_text(f"{LEGEND}\n{LINE}\n")
    assert checked(listed(job), "JobRow")["queued"] == 800


def test_a_store_that_cannot_be_read_leaves_the_totals_to_the_log(job: Path) -> None:
    """A list of jobs reports no damage of a store."""
    (job / "state" / STORE_FILE).write_text("no database")
    (job / "logs" / PROGRESS_LOG_FILE).write_text(f"{LEGEND}\n{LINE}\n")
    assert checked(listed(job), "JobRow")["queued"] == 800


def begin_job(store: str, name: str, folder: Path) -> None:
    """A job of several workers with one queued URL."""
    order = load_order(None, {"store": store}, ["frontier.shares=4", f"job.name={name}"])
    with JobDatabase(store) as database:
        join(database, Wanted(order, [Seed(url="http://a.test/", source="test")]), Applicant(name, name, is_named=True))
        with open_share_holder(folder, order, WorkerIdentity(name=name, token=name), store):
            pass


def test_the_jobs_of_a_database_and_of_its_server_are_listed(tmp_path: Path) -> None:
    """A job in another schema has a URL of its own, by which each command finds it; one that cannot be read is a row, too."""
    with server() as url:
        store = url.replace(":@", "@")
        begin_job(store, "news", tmp_path / "news")
        administer(store, "CREATE SCHEMA archive")
        other = f"{store}&options=-csearch_path%3Darchive"
        begin_job(other, "portals", tmp_path / "portals")
        administer(store, "CREATE SCHEMA odd")
        administer(store, "CREATE TABLE odd.crawl (name text)")
        rows = [checked(row, "JobRow") for row in listed_databases(store)]
        assert [(row["job"], row["phase"]) for row in (rows[0], rows[2])] == [
            ("portals", "stopped"),
            ("news", "stopped"),
        ]
        assert operated(rows[0]["folder"]).status()["job"] == "portals"
        assert (rows[1]["phase"], "another program" in rows[1]["line"]) == ("unknown", True)
        assert [row["job"] for row in listed_databases(other)] == ["portals"]
        whole = make_url(store).set(database=None).render_as_string()
        assert {row["folder"] for row in listed_databases(whole)} >= {row["folder"] for row in rows}


def state_of(job: Path) -> tuple[str, str, str | None]:
    """The job's state, what is wanted, and why its last run ended."""
    row = checked(listed(job), "JobRow")
    return row["state"], row["desired_state"], None if row["ended"] is None else row["ended"]["why"]


def test_what_is_wanted_what_is_and_why_it_ended_are_three_facts(job: Path) -> None:
    """A run that has not ended was killed; one that was to end is stopped then; one that failed should run, too."""
    assert state_of(job) == ("stopped", "stopped", None)
    note = RunNote(job / STATE)
    note.begin()
    assert state_of(job) == ("killed", "run", "killed")
    assert "resumes" in listed(job)["line"]
    assert listed(job)["ended"]["time_s"] == pytest.approx(time.time(), abs=HANG_S)
    note.unwanted()
    assert state_of(job) == ("stopped", "stopped", "killed")
    note.end("signal", "stopped by a signal")
    assert state_of(job) == ("stopped", "stopped", "signal")
    note.begin()
    note.end(FAILED, "the disk is full")
    assert state_of(job) == ("failed", "run", "failed")
    assert listed(job)["line"] == "failed: the disk is full"
    assert (end_wish(job), end_wish(job)) == (True, False)
    assert state_of(job) == ("stopped", "stopped", "failed")
    note.begin()
    note.end("finished", "nothing is queued")
    (job / STATE / "finished").touch()
    assert state_of(job) == ("finished", "finished", "finished")


@pytest.mark.parametrize("text", ["", "{}", '{"began_s": 1, "more": 2}', "deadbeef {}\n", "[" * 100_000])
def test_a_record_that_cannot_be_read_says_nothing(job: Path, text: str) -> None:
    """It is damaged, or of another version."""
    (job / STATE / "run.json").write_text(text)
    assert state_of(job) == ("stopped", "stopped", None)


def test_who_looks_at_a_killed_job_does_not_hide_that(job: Path) -> None:
    """A command that has the job open is another process; the run itself is being opened or closed."""
    note = RunNote(job / STATE)
    note.begin()
    with JobFolder.open(job):
        assert state_of(job)[0] == "unknown"  # this process is the run
        record = run_record(job / STATE)
        assert record is not None
        line = checked_line(json.dumps(record._replace(pid=record.pid + 1)._asdict()).encode())
        (job / STATE / "run.json").write_bytes(line)
        assert state_of(job) == ("killed", "run", "killed")
        assert listed(job)["phase"] == "unknown"
