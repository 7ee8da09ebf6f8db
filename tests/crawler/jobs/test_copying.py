"""Jobs that can only be read. (Tests may run as root, who may write everywhere but to a read-only disk.)"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.jobs import copying
from crawler.jobs.copying import refuse_unwritable, to_be_read
from crawler.jobs.job import ORDER_FILE, JobFolder
from crawler.outcomes.errors import JobInUse, NotPermitted


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A stopped job, with something in each place that is read."""
    with JobFolder.open(tmp_path / "news") as job:
        job.write_order("# all defaults")
        job.crawl_log.write_text("a line")
        (job.state / "seen").mkdir()
        (job.state / "seen" / "0").write_bytes(b"seen")
    return tmp_path / "news"


@pytest.fixture
def archived(job: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same, on a medium that takes no writing."""
    monkeypatch.setattr(copying.os, "access", lambda *_: False)
    modes = {path: path.stat().st_mode for path in (job, *job.rglob("*")) if path.is_dir()}
    for path in modes:
        path.chmod(0o500)
    yield job
    for path, mode in modes.items():
        path.chmod(mode)


def test_a_job_that_can_be_written_is_read_where_it_is(job: Path) -> None:
    """Nothing is copied."""
    with to_be_read(job) as place:
        assert place == job
    refuse_unwritable(job)


def test_a_job_that_cannot_be_written_is_read_by_a_copy(archived: Path) -> None:
    """It has the job's name, takes writing, and is gone at the end; logs are read where they are."""
    with to_be_read(archived) as place:
        assert place.name == archived.name
        assert (place / ORDER_FILE).read_text() == "# all defaults"
        assert (place / "state" / "seen" / "0").read_bytes() == b"seen"
        assert (place / "logs" / "crawl.log").samefile(archived / "logs" / "crawl.log")
        with JobFolder.open(place) as copied:
            assert copied.existed
    assert not place.parent.exists()
    assert (archived / "logs" / "crawl.log").read_text() == "a line"


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
