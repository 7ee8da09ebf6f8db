"""The workers' logs as the job's."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.archive.files import WarcFiles
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.journal import LineFile
from anabranch.crawler.processes.gathering import CRAWL_LOG, GatheringDamaged, begin_anew, finish_warcs, gather
from anabranch.dedup.files.durable import AppendOnlyFile, FileMark
from tests.crawler.archive.exchanges import OPTIONS, START_S, exchange, urls_in


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for folder in ("state", "logs", "workers/1/logs", "workers/2/logs"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def workers(job: Path) -> list[Path]:
    return [job / "workers" / "1", job / "workers" / "2"]


def line(second: int, text: str) -> str:
    return f"2026-11-22T10:00:{second:02}.000Z   200 {text}\n"


def log(job: Path, worker: int, *lines: str) -> None:
    with (job / "workers" / str(worker + 1) / CRAWL_LOG).open("a") as file:
        file.writelines(lines)


def gathered(job: Path) -> list[str]:
    return (job / CRAWL_LOG).read_text().splitlines(keepends=True)


def test_lines_of_all_workers_stand_in_the_order_of_their_times(job: Path) -> None:
    """The log reads as if one process had written it."""
    log(job, 0, line(1, "a"), line(4, "d"))
    log(job, 1, line(2, "b"), line(3, "c"), line(5, "e"))
    gather(job, workers(job))
    assert gathered(job) == [line(number + 1, text) for number, text in enumerate("abcde")]


def test_what_was_gathered_is_not_gathered_again(job: Path) -> None:
    """Only what came since."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    log(job, 1, line(2, "b"))
    gather(job, workers(job))
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a"), line(2, "b")]


def test_a_line_that_is_being_written_waits(job: Path) -> None:
    """Until it has its end."""
    log(job, 0, line(1, "a"), "2026-11-22T10:00:0")
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a")]
    log(job, 0, line(2, "b").removeprefix("2026-11-22T10:00:0"))
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a"), line(2, "b")]


def test_a_gathering_that_was_killed_is_done_again(job: Path) -> None:
    """Lines that were added, and not noted as added, are cut first."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    log(job, 0, line(2, "b"))
    with (job / CRAWL_LOG).open("a") as file:
        file.write(line(2, "b") + "2026")
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a"), line(2, "b")]


@pytest.mark.parametrize("how", ["moved", "removed", "cut"])
def test_a_job_file_that_was_rotated_begins_anew(job: Path, how: str) -> None:
    """Lines that were gathered before the rotation are not gathered again."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    if how == "moved":
        (job / CRAWL_LOG).rename(job / "logs" / "crawl.log.1")
    elif how == "removed":
        (job / CRAWL_LOG).unlink()
    else:
        os.truncate(job / CRAWL_LOG, 0)
    log(job, 1, line(2, "b"))
    gather(job, workers(job))
    gather(job, workers(job))
    assert gathered(job) == [line(2, "b")]


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize("has_inodes", [True, False])
def test_a_kill_after_a_rotation_doubles_no_line(
    job: Path, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool, has_inodes: bool
) -> None:
    """A new file is recorded before it is written to; otherwise gathered lines could not be told from those already there."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    if not has_inodes:  # as an earlier version notes it
        note = job / "state" / "gathered.json"
        note.write_text(json.dumps({CRAWL_LOG: {"size": len(line(1, "a")), "read": {"1": len(line(1, "a"))}}}))
    if is_cut:
        os.truncate(job / CRAWL_LOG, 0)
    else:
        (job / CRAWL_LOG).rename(job / "logs" / "crawl.log.1")
    log(job, 0, line(2, "b"))

    def killed(_file: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AppendOnlyFile, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            gather(job, workers(job))
    assert gathered(job) == [line(2, "b")]
    gather(job, workers(job))
    assert gathered(job) == [line(2, "b")]


def test_lines_of_a_group_that_does_not_count_are_not_gathered(job: Path) -> None:
    """The worker that wrote them was killed. Its next life would cut them, and what is cut must not be in the job's log."""
    worker = job / "workers" / "1"
    (worker / "state").mkdir()
    accounts = Accounts(worker / "state", worker / CRAWL_LOG, lambda: 0.0)
    log(job, 0, line(1, "a"))
    accounts.begin(LineFile(worker / CRAWL_LOG, "crawl_log").marks())
    log(job, 0, line(2, "unrecorded"))
    for _ in range(2):
        gather(job, workers(job))
        assert gathered(job) == [line(1, "a")]
    log(job, 0, line(3, "b"))
    accounts.begin(LineFile(worker / CRAWL_LOG, "crawl_log").marks())
    accounts.close()
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a"), line(3, "b")]


def test_warc_files_of_killed_workers_are_finished(job: Path) -> None:
    """With what they recorded, whether they come back or not; those of a worker without any record as they are."""
    recorded, torn = exchange("http://a.test/"), exchange("http://b.test/")
    marks: dict[str, FileMark] = {}
    for worker in workers(job):
        (worker / "state").mkdir()
        files = WarcFiles(job / "warc", replace(OPTIONS, prefix=f"x-{worker.name}", is_alone=False), lambda: START_S)
        for one in (recorded, torn):
            files.append([JournalEntry(exchange=one)])
            files.keep()
            marks = marks or dict(files.marks())
    Accounts(job / "workers/1/state", job / "workers/1" / CRAWL_LOG, lambda: 0.0).begin(marks)
    finish_warcs(job / "warc", "x", workers(job))
    assert urls_in(job / "warc") == ["http://a.test/", "http://a.test/", "http://b.test/"]
    assert {path.suffix for path in (job / "warc").iterdir()} == {".gz", ".cdxj"}


def test_a_workers_log_that_was_rotated_loses_no_line_and_doubles_none(job: Path) -> None:
    """The rest of the file that was moved comes first."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    log(job, 0, line(2, "b"))
    (job / "workers" / "1" / CRAWL_LOG).rename(job / "workers" / "1" / "logs" / "crawl.log.1")
    gather(job, workers(job))
    log(job, 0, line(3, "c"))
    gather(job, workers(job))
    os.truncate(job / "workers" / "1" / CRAWL_LOG, 0)
    gather(job, workers(job))
    log(job, 0, line(4, "d"))
    gather(job, workers(job))
    assert gathered(job) == [line(number + 1, text) for number, text in enumerate("abcd")]


def test_a_workers_log_that_was_rotated_often_is_gathered_whole(job: Path) -> None:
    """Also if nothing was gathered before; what is compressed stays where it is."""
    folder = job / "workers" / "1" / "logs"
    for number in range(4):
        log(job, 0, line(number + 1, "abcd"[number]))
        os.utime(folder / "crawl.log", (number, number))
        if number < 3:
            (folder / "crawl.log").rename(folder / f"crawl.log.{3 - number}")
    (folder / "crawl.log.4.gz").write_bytes(b"packed\n")
    gather(job, workers(job))
    gather(job, workers(job))
    assert gathered(job) == [line(number + 1, text) for number, text in enumerate("abcd")]


def test_files_that_no_worker_has_are_not_made(job: Path) -> None:
    """A crawl that writes no links has no links.jsonl."""
    log(job, 0, line(1, "a"))
    (job / "workers/2/pages.jsonl").write_text('{"url": "x"}\n')
    gather(job, workers(job))
    assert (job / "pages.jsonl").read_text() == '{"url": "x"}\n'
    assert not (job / "links.jsonl").exists()


HARMS: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "cut": lambda note: os.truncate(note, 20),
    "emptied": lambda note: os.truncate(note, 0),
    "a digit changed": lambda note: note.write_bytes(note.read_bytes().replace(b'"size": 3', b'"size": 2', 1)),
}


@pytest.mark.parametrize("harm", HARMS)
def test_where_it_is_not_known_what_was_gathered_nothing_is_touched(job: Path, harm: str) -> None:
    """Neither cut nor gathered twice; once the job's own files are away, they are gathered anew."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    note = job / "state" / "gathered.json"
    before = note.read_bytes()
    HARMS[harm](note)
    assert not note.exists() or note.read_bytes() != before
    with pytest.raises(GatheringDamaged, match=rf"gathered\.json: .*remove it and move .*{CRAWL_LOG} away"):
        gather(job, workers(job))
    assert gathered(job) == [line(1, "a")]
    note.unlink(missing_ok=True)
    (job / CRAWL_LOG).rename(job / "kept.log")
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a")]


def test_a_first_gathering_that_was_killed_is_begun_again(job: Path) -> None:
    """It had noted that it begins."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job)[1:])
    (job / CRAWL_LOG).write_text(line(1, "a")[:10])
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a")]


def test_places_of_a_version_without_checksums_count(job: Path) -> None:
    """Nothing is gathered twice."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    note = job / "state" / "gathered.json"
    note.write_bytes(note.read_bytes()[9:])
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a")]


def test_a_job_that_was_copied_is_gathered_no_second_time(job: Path) -> None:
    """Its files have other inodes, all of them."""
    log(job, 0, line(1, "a"))
    gather(job, workers(job))
    copy = job.with_name("copy")
    shutil.copytree(job, copy)
    log(copy, 0, line(2, "b"))
    gather(copy, workers(copy))
    assert gathered(copy) == [line(1, "a"), line(2, "b")]


def test_workers_folders_may_be_removed_between_runs(job: Path) -> None:
    """Their lines are in the job's files. What new workers write is gathered from its begin, also in a copy of the job."""
    log(job, 0, line(1, "a"), line(2, "b"))
    gather(job, workers(job))
    copy = job.with_name(f"{job.name}-copy")
    shutil.copytree(job, copy)
    shutil.rmtree(copy / "workers")
    gather(copy, [])
    (copy / "workers/1/logs").mkdir(parents=True)
    log(copy, 0, line(3, "c"), line(4, "d"), line(5, "e"))
    gather(copy, [copy / "workers" / "1"])
    assert gathered(copy) == [line(number + 1, text) for number, text in enumerate("abcde")]


def test_lines_that_were_the_jobs_own_stay_when_workers_have_more(job: Path) -> None:
    """Such lines are those of a job that one process has begun."""
    (job / CRAWL_LOG).write_text(line(1, "a"))
    begin_anew(job)
    log(job, 0, line(2, "b"))
    gather(job, workers(job))
    assert gathered(job) == [line(1, "a"), line(2, "b")]
