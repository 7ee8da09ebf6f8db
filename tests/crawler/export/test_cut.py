"""The cut of a job: what the journal has recorded, and nothing else, of all its workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.crawler.archive.files import OPEN, open_files
from anabranch.crawler.export import cut as cut_module
from anabranch.crawler.export.cut import CRAWL_LOG, LINKS, PAGES, JobChanging, JobCut, cut_of, write_files
from anabranch.crawler.job.workerfolders import worker_folders
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.processes.gathering import gather
from tests.crawler.archive.exchanges import START_S, urls_in
from tests.crawler.export.jobs import entry, finished, running

A, B, C = "http://a.test/1", "http://a.test/2", "http://b.test/"


def urls(cut: JobCut) -> list[str]:
    return [json.loads(line)["url"] for line in cut.lines(PAGES)]


def indexed(cut: JobCut, scratch: Path) -> list[str]:
    lines = list(cut.index(scratch))
    assert lines == sorted(lines)
    return [json.loads(line.split(b" ", 2)[2])["url"] for line in lines]


async def test_a_job_that_has_ended_is_exported_whole(tmp_path: Path) -> None:
    """Its logs, its WARC files and their index."""
    cut = cut_of(await finished(tmp_path / "job", entry(A, links=[B]), entry(B)))
    assert urls(cut) == [A, B]
    assert cut.has(LINKS)
    (warc,) = cut.warcs
    assert (warc.is_finished, warc.size) == (True, warc.path.stat().st_size)
    assert indexed(cut, tmp_path) == [A, B]


async def test_of_a_running_job_only_what_is_recorded_counts(tmp_path: Path) -> None:
    """Not the lines and the records of a group that is being written, in no file."""
    async with running(tmp_path / "job") as journal:
        await journal.write(entry(A))
        cut = cut_of(tmp_path / "job")
        await journal.write(entry(B))
        (growing,) = open_files(tmp_path / "job" / "warc")
        for path in (tmp_path / "job" / "pages.jsonl", tmp_path / "job" / "logs" / "crawl.log", growing):
            with path.open("ab") as file:
                file.write(b"torn")
        later = cut_of(tmp_path / "job")
        for one, expected in ((cut, [A]), (later, [A, B])):
            assert urls(one) == expected
            assert indexed(one, tmp_path) == expected
            assert len(list(one.lines(CRAWL_LOG))) == len(expected)
            assert all(not warc.is_finished for warc in one.warcs)
        for path in (tmp_path / "job" / "pages.jsonl", tmp_path / "job" / "logs" / "crawl.log", growing):
            path.write_bytes(path.read_bytes().removesuffix(b"torn"))


async def test_a_file_that_gets_its_final_name_meanwhile_is_read_under_it(tmp_path: Path) -> None:
    """The crawl ends between the cut and the export."""
    async with running(tmp_path / "job") as journal:
        await journal.write(entry(A))
        cut = cut_of(tmp_path / "job")
    assert not cut.warcs[0].path.exists()
    with cut.warcs[0].opened() as file:
        assert len(file.read()) >= cut.warcs[0].size
    assert indexed(cut, tmp_path) == [A]


async def test_a_file_that_is_finished_while_files_are_listed_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither in the first list nor among the files that grow."""
    job = await finished(tmp_path / "job", entry(A))
    listed, real = [], cut_module.finished_files

    def finished_files(folder: Path) -> list[Path]:
        listed.append(folder)
        return real(folder) if len(listed) > 1 else []

    monkeypatch.setattr(cut_module, "finished_files", finished_files)
    assert indexed(cut_of(job), tmp_path) == [A]
    monkeypatch.setattr(cut_module, "finished_files", lambda _: [Path(str(listed.append(job) or len(listed)))])
    with pytest.raises(JobChanging, match="ask again"):
        cut_of(job)


async def test_what_a_killed_run_had_not_recorded_does_not_count(tmp_path: Path) -> None:
    """The next run would cut it."""
    job = tmp_path / "job"
    async with running(job) as journal:
        await journal.write(entry(A))
        kept = {path: path.read_bytes() for path in job.rglob("*") if path.is_file()}
        await journal.write(entry(B))
        grown = {path: path.read_bytes() for path in kept if path.exists()}
    for path in job.rglob("*"):
        if path.is_file():
            path.unlink()
    for path, content in grown.items():  # all files of the second group, and the journal of the first
        path.write_bytes(kept[path] if path.name == "accounts.journal" else content)
    cut = cut_of(job)
    assert urls(cut) == [A]
    assert indexed(cut, tmp_path) == [A]


async def test_the_logs_of_several_workers_are_one(tmp_path: Path) -> None:
    """The lines that the job has, then those that only its workers have; crawl.log by time; nothing twice."""
    job = tmp_path / "job"
    for name in ("state", "logs"):
        (job / name).mkdir(parents=True)
    await finished(job / "workers" / "1", entry(A, at_s=START_S + 3), warc=False)
    await finished(job / "workers" / "2", entry(B, at_s=START_S + 1), entry(C, at_s=START_S + 5), warc=False)
    cut = cut_of(job)
    assert urls(cut) == [A, B, C]
    assert [line.split()[3].decode() for line in cut.lines(CRAWL_LOG)] == [B, A, C]
    gather(job, worker_folders(job))
    with (job / "pages.jsonl").open("ab") as file:
        file.write(b"what a gathering that was killed has left\n")
    async with running(job / "workers" / "1", warc=False) as journal:
        await journal.write(entry("http://c.test/"))
        assert urls(cut_of(job)) == [A, B, C, "http://c.test/"]
    assert urls(cut) == [A, B, C]


async def test_a_workers_records_and_lines_are_of_one_moment(tmp_path: Path) -> None:
    """The WARC files of workers are in one folder of the job."""
    job = tmp_path / "job"
    async with running(job / "workers" / "1", warc_prefix="w-1") as journal:
        await journal.write(entry(A))
        (job / "warc").symlink_to(job / "workers" / "1" / "warc")
        (job / "state").mkdir()
        cut = cut_of(job)
        await journal.write(entry(B))
        assert urls(cut) == indexed(cut, tmp_path) == [A]


async def test_more_indexes_than_files_may_be_open_are_merged_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line once, in order; an index that was removed is made of the records."""
    monkeypatch.setattr(cut_module, "_MOST_OPEN", 2)
    names = [f"http://{name}.test/" for name in "gfedcba"]
    for name in names:
        await finished(tmp_path / "job", entry(name))
    next(iter((tmp_path / "job" / "warc").glob("*.cdxj"))).unlink()
    assert indexed(cut_of(tmp_path / "job"), tmp_path) == sorted(names)


async def test_files_of_all_workers_are_written_as_one_of_each(tmp_path: Path) -> None:
    """With one index of all records; a log without lines is left out."""
    cut = cut_of(await finished(tmp_path / "job", entry(A), entry(B)))
    out = tmp_path / "out"
    out.mkdir()
    assert write_files(cut, lambda name: out / name, tmp_path) == ["crawl.log", "pages.jsonl", "index.cdxj"]
    assert (out / "pages.jsonl").read_bytes() == (tmp_path / "job" / "pages.jsonl").read_bytes()
    assert len((out / "index.cdxj").read_bytes().splitlines()) == 2


async def test_a_log_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """No endless loop, and no silent loss."""
    job = await finished(tmp_path / "job", entry(A), entry(B))
    cut = cut_of(job)
    (job / "pages.jsonl").write_bytes(b"")
    with pytest.raises(StorageError, match="was moved or cut while it was read"):
        urls(cut)


async def test_warc_files_of_another_folder_take_the_place_of_the_jobs(tmp_path: Path) -> None:
    """Such as those that were converted."""
    job = await finished(tmp_path / "job", entry(A))
    other = await finished(tmp_path / "other", entry(B))
    assert indexed(cut_of(job, other / "warc"), tmp_path) == [B]
    assert OPEN not in cut_of(job, other / "warc").warcs[0].path.name
    assert urls_in(job / "warc") == [A]
