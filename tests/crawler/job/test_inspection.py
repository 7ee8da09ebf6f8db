"""Jobs that can only be read. (Tests may run as root, who may write everywhere but to a read-only disk.)"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch.crawler.job import inspection
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.inspection import open_embedded, opened, readable_job, refuse_unwritable
from anabranch.crawler.outcomes.errors import DiskFull, JobInUse, NotPermitted, UsageError
from anabranch.frontier.hosts.embedding import leaseboard
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.jobfolder import FORMAT_FILE, ORDER_FILE, format_text
from anabranch.frontier.records import Candidate


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
    """The stopped job of `job`, on a medium that cannot be written."""
    monkeypatch.setattr(inspection.os, "access", lambda *_: False)
    modes = {path: path.stat().st_mode for path in (job, *job.rglob("*")) if path.is_dir()}
    for path in modes:
        path.chmod(0o500)
    yield job
    for path in filter(Path.exists, modes):
        path.chmod(modes[path])


def test_a_job_that_can_be_written_is_read_where_it_is(job: Path) -> None:
    """Nothing is copied."""
    with readable_job(job) as place:
        assert place == job
    refuse_unwritable(job)


def test_a_job_that_cannot_be_written_is_read_by_a_copy(archived: Path) -> None:
    """It has the job's name, takes writing, and is gone at the end; logs are read where they are."""
    with readable_job(archived) as place:
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
    with readable_job(archived) as place, JobFolder.open(place) as copied:
        assert not copied.crawl_log.exists()


@pytest.mark.parametrize("mark", ["fresh", "again"])
def test_a_job_that_was_left_half_removed_is_told_by_its_own_name(archived: Path, mark: str) -> None:
    """Its order or its queue is gone in the copy, which nobody has heard of."""
    (archived / "state").chmod(0o700)
    (archived / "state" / mark).write_text("2")
    with (
        pytest.raises(UsageError, match=rf"^{archived}: the job has n"),
        readable_job(archived) as place,
        opened(place),
    ):
        pass


def test_a_defect_in_the_block_stays_as_it_is(archived: Path) -> None:
    """Only what is for the operator is told by the job's name."""
    with pytest.raises(ZeroDivisionError, match=r"^anabranch-x$"), readable_job(archived):
        raise ZeroDivisionError("anabranch-x")


def test_what_is_to_be_changed_is_refused_there(archived: Path) -> None:
    """One line says what can be done."""
    with pytest.raises(NotPermitted, match=r"copy the folder to where it can be written$"):
        refuse_unwritable(archived)


def test_a_job_of_somebody_else_that_runs_is_not_copied(archived: Path) -> None:
    """Its files would not fit together."""
    lock = os.open(archived / "state" / "lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(JobInUse), readable_job(archived):
        pass
    os.close(lock)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedJob]:
    """A host that runs, with one URL in flight and one queued; copies go to `scratch`."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    job = EmbeddedJob(tmp_path / "job", {"policy": "bkdr:2", "min_delay": 5})
    job.frontier.schedule([Candidate("http://a.test/1"), Candidate("http://a.test/2")])
    job.frontier.flush()
    while job.frontier.lease() is None:
        job.frontier.wait_until_durable()
    yield job
    job.close()


def folder(host: EmbeddedJob) -> Path:
    assert host.folder is not None
    return host.folder


def test_a_job_that_its_host_holds_is_read_by_a_snapshot(host: EmbeddedJob, tmp_path: Path) -> None:
    """It has what is durable, and what is in flight; the host goes on, and nothing is left of the copy."""
    with open_embedded(folder(host), reads=True) as opened:
        assert opened.snapshot is not None
        assert opened.order.frontier.policy == "bkdr:2"
        assert (opened.frontier.in_flight, opened.frontier.pending) == (1, 1)
        host.frontier.schedule([Candidate("http://a.test/3")])
        host.frontier.flush()
        assert opened.frontier.pending == 1
    assert not list((tmp_path / "scratch").iterdir())
    assert host.frontier.pending == 2


def test_a_snapshot_is_gone_whatever_happens(host: EmbeddedJob, tmp_path: Path) -> None:
    """Also if whoever looks is interrupted."""
    with pytest.raises(KeyboardInterrupt), open_embedded(folder(host), reads=True):
        raise KeyboardInterrupt
    assert not list((tmp_path / "scratch").iterdir())


def test_a_host_without_a_board_is_read_all_the_same(host: EmbeddedJob) -> None:
    """Without the lease board, the number of URLs in flight is unknown."""
    (folder(host) / "state" / "leases").unlink()
    with open_embedded(folder(host), reads=True) as opened:
        assert opened.snapshot is not None
        assert opened.snapshot.in_flight is None
        assert opened.frontier.pending == 2


def test_nothing_is_changed_in_a_job_that_its_host_holds(host: EmbeddedJob) -> None:
    """Whoever wants that is told who holds it."""
    with pytest.raises(JobInUse), open_embedded(folder(host), reads=False):
        pass


def test_a_job_that_its_host_has_left_is_opened_itself(host: EmbeddedJob) -> None:
    """Changes are kept, and no file is added to the folder."""
    host.close()
    before = sorted(path.name for path in folder(host).iterdir())
    with open_embedded(folder(host), reads=False) as opened:
        assert opened.snapshot is None
        assert opened.frontier.operations.remove(lambda url: url.endswith("1")) == 1
    assert sorted(path.name for path in folder(host).iterdir()) == before
    again = EmbeddedJob(folder(host), {"policy": "bkdr:2"})
    assert again.frontier.pending == 1
    again.close()


def test_a_full_disk_for_the_copy_is_told(host: EmbeddedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the copy's place: the job's own disk may have room."""

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(source))

    monkeypatch.setattr("anabranch.frontier.stores.sql.livecopy.shutil.copyfile", full)
    with pytest.raises(DiskFull, match=r"/scratch/anabranch-"), open_embedded(folder(host), reads=True):
        pass


def test_a_job_without_a_queue_is_told(tmp_path: Path) -> None:
    """Its program was ended before it had made one."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FORMAT_FILE).write_bytes(format_text(embedded=True))
    (tmp_path / "state" / "lock").touch()
    with pytest.raises(UsageError, match="its program begins it"), open_embedded(tmp_path, reads=True):
        pass


def test_a_board_that_cannot_be_written_is_given_up(host: EmbeddedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs the view of others, not the crawl."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(leaseboard, "os", SimpleNamespace(pwrite=full, close=os.close))
    for held in list(host.frontier._leases):
        host.frontier.release(held[0])
    assert not (folder(host) / "state" / "leases").exists()
