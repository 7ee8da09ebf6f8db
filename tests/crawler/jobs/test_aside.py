"""An old job is moved aside whole, or stays whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.crawler.jobs import orderfile
from anabranch.crawler.jobs.aside import move_aside
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.outcomes.errors import JobInUse, OrderDamaged, UsageError

NOW_S = 1_790_000_000.0  # 2026-09-21T14:13:20Z


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    JobFolder.open(folder).close()
    (folder / "warc").mkdir()
    (folder / "warc" / "a.warc.gz").write_bytes(b"an archive")
    return folder


def write_order(folder: Path, text: str) -> None:
    (folder / "order.toml").write_text(text)


def test_a_job_is_renamed_with_the_time(job: Path) -> None:
    """In UTC, beside it; its files are the same ones."""
    archive = (job / "warc" / "a.warc.gz").stat().st_ino
    moved = move_aside(job, NOW_S)
    assert moved is not None
    assert moved.place == job.with_name("job.previous-20260921T141320Z")
    assert not job.exists()
    assert (moved.place / "warc" / "a.warc.gz").stat().st_ino == archive


def test_a_name_that_is_taken_is_not_overwritten(job: Path) -> None:
    """Two in one second have two names."""
    names = []
    for _ in range(3):
        JobFolder.open(job).close()
        moved = move_aside(job, NOW_S)
        assert moved is not None
        names.append(moved.place.name)
    assert names == [f"job.previous-20260921T141320Z{more}" for more in ("", "-2", "-3")]


def test_what_is_no_job_is_left_alone(tmp_path: Path) -> None:
    """Neither a missing folder nor another one is moved."""
    (tmp_path / "thesis").mkdir()
    assert move_aside(tmp_path / "thesis", NOW_S) is None
    assert move_aside(tmp_path / "none", NOW_S) is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis"]


def test_a_job_in_use_stays(job: Path) -> None:
    """Its process writes to it."""
    with JobFolder.open(job), pytest.raises(JobInUse):
        move_aside(job, NOW_S)
    assert job.is_dir()


def test_a_queue_in_a_database_does_not_move_with_the_folder(job: Path) -> None:
    """The line says what to do, and nothing is changed."""
    write_order(job, '[frontier]\nstore = "postgresql://me@localhost/crawl"\n')
    with pytest.raises(
        UsageError, match=r"--name OTHER --store URL.*, or delete its folder and drop its tables yourself$"
    ):
        move_aside(job, NOW_S)
    assert job.is_dir()


@pytest.mark.parametrize("order", [None, "no [toml", '[frontier]\nstore = "nothing that exists"\n'])
def test_the_copy_in_the_state_tells_where_the_queue_is(job: Path, order: str | None) -> None:
    """An order that is lost or broken hides no database."""
    orderfile.write_order(job, '[frontier]\nstore = "postgresql://me@localhost/crawl"\n')
    (job / "order.toml").unlink()
    if order is not None:
        write_order(job, order)
    with pytest.raises(UsageError, match=r"in a database"):
        move_aside(job, NOW_S)
    assert job.is_dir()


@pytest.mark.parametrize("order", [None, "no [toml"])
def test_a_job_whose_queue_may_be_anywhere_stays(job: Path, order: str | None) -> None:
    """Without an order that can be read it is moved only if its queue is in the folder."""
    (job / "state" / "seeds.jsonl").write_text("something\n")
    if order is not None:
        write_order(job, order)
    with pytest.raises(OrderDamaged, match=r"order.toml: cannot be read, .*; restore it from a copy, or move"):
        move_aside(job, NOW_S)
    (job / "state" / "frontier.db").write_text("rows")
    assert move_aside(job, NOW_S) is not None


def test_the_servers_of_a_shared_filter_are_named(job: Path) -> None:
    """They keep what they know."""
    write_order(job, '[dedup]\nleaves = ["redis://127.0.0.1:6379/0"]\n')
    moved = move_aside(job, NOW_S)
    assert moved is not None
    assert moved.leaves == ("redis://127.0.0.1:6379/0",)


def test_an_order_that_cannot_be_read_keeps_no_job_from_being_moved(job: Path) -> None:
    """It may be why somebody starts over."""
    write_order(job, "no [toml")
    assert move_aside(job, NOW_S) is not None


def test_the_current_folder_is_not_moved(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new job would be made in the old one's folder."""
    monkeypatch.chdir(job / "warc")
    with pytest.raises(UsageError, match="current folder"):
        move_aside(Path(".."), NOW_S)
    assert job.is_dir()


def test_a_folder_that_cannot_be_renamed_is_told(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount point, for one: nothing is copied, and the job can be taken afterwards."""

    def refuse(*_: object) -> None:
        raise OSError(16, os.strerror(16))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(
        UsageError, match=r"cannot be moved aside to job\.previous-20260921T141320Z: Device or resource busy"
    ):
        move_aside(job, NOW_S)
    JobFolder.open(job).close()
