"""Jobs that can only be read. (Tests may run as root, who may write everywhere but to a read-only disk.)"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.crawler.cli.frontier import opened
from anabranch.crawler.jobs import copying
from anabranch.crawler.jobs.copying import refuse_unwritable, to_be_read
from anabranch.crawler.jobs.job import ORDER_FILE, JobFolder
from anabranch.crawler.outcomes.errors import JobInUse, NotPermitted, UsageError


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A stopped job, with something in each place that is read."""
    with JobFolder.open(tmp_path / "news") as job:
        job.write_order("# all defaults")
        job.crawl_log.write_text("a line")
        (job.state / "seen").mkdir()
        (job.state / "seen" / "0").write_bytes(b"seen")
        for ending in ("", "-wal", "-shm"):
            (job.state / f"payloads.sqlite{ending}").write_bytes(b"large")
    return tmp_path / "news"


@pytest.fixture
def archived(job: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same, on a medium that takes no writing."""
    monkeypatch.setattr(copying.os, "access", lambda *_: False)
    modes = {path: path.stat().st_mode for path in (job, *job.rglob("*")) if path.is_dir()}
    for path in modes:
        path.chmod(0o500)
    yield job
    for path in filter(Path.exists, modes):
        path.chmod(modes[path])


def test_a_job_that_can_be_written_is_read_where_it_is(job: Path) -> None:
    """Nothing is copied."""
    with to_be_read(job) as place:
        assert place == job
    refuse_unwritable(job)


def test_a_job_that_cannot_be_written_is_read_by_a_copy(archived: Path) -> None:
    """It has the job's name, takes writing, and is gone at the end; logs are read where they are."""
    with to_be_read(archived) as place:
        assert place.name == archived.name
        assert (place / ORDER_FILE).read_bytes() == (archived / ORDER_FILE).read_bytes()
        assert (place / "state" / "seen" / "0").read_bytes() == b"seen"
        assert not list((place / "state").glob("payloads*")), "it is large, and nobody looks into it"
        assert (place / "logs" / "crawl.log").samefile(archived / "logs" / "crawl.log")
        with JobFolder.open(place) as copied:
            assert copied.existed
    assert not place.parent.exists()
    assert (archived / "logs" / "crawl.log").read_text() == "a line"


def test_a_job_that_was_archived_without_its_logs_is_read(archived: Path) -> None:
    """It has none then."""
    archived.chmod(0o700)
    shutil.rmtree(archived / "logs")
    with to_be_read(archived) as place, JobFolder.open(place) as copied:
        assert not copied.crawl_log.exists()


@pytest.mark.parametrize("mark", ["fresh", "again"])
def test_a_job_that_was_left_half_removed_is_told_by_its_own_name(archived: Path, mark: str) -> None:
    """Its order or its queue is gone in the copy, which nobody has heard of."""
    (archived / "state").chmod(0o700)
    (archived / "state" / mark).write_text("2")
    with pytest.raises(UsageError, match=rf"^{archived}: the job has n"), to_be_read(archived) as place, opened(place):
        pass


def test_a_defect_in_the_block_stays_as_it_is(archived: Path) -> None:
    """Only what is for the operator is told by the job's name."""
    with pytest.raises(ZeroDivisionError, match=r"^anabranch-x$"), to_be_read(archived):
        raise ZeroDivisionError("anabranch-x")


def test_what_is_to_be_changed_is_refused_there(archived: Path) -> None:
    """One line says what can be done."""
    with pytest.raises(NotPermitted, match=r"copy the folder to where it can be written$"):
        refuse_unwritable(archived)


def test_a_job_of_somebody_else_that_runs_is_not_copied(archived: Path) -> None:
    """Its files would not fit together."""
    lock = os.open(archived / "state" / "lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(JobInUse), to_be_read(archived):
        pass
    os.close(lock)
