"""Jobs of host programs, opened by others. (A lock keeps out whoever has another descriptor, in the same process, too.)"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch.crawler.jobs.embedded import opened_embedded
from anabranch.crawler.outcomes.errors import DiskFull, JobInUse, UsageError
from anabranch.frontier.embedding import leaseboard
from anabranch.frontier.embedding.folder import FORMAT_FILE, format_text
from anabranch.frontier.embedding.job import EmbeddedJob
from anabranch.frontier.models import Candidate


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
    with opened_embedded(folder(host), reads=True) as opened:
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
    with pytest.raises(KeyboardInterrupt), opened_embedded(folder(host), reads=True):
        raise KeyboardInterrupt
    assert not list((tmp_path / "scratch").iterdir())


def test_a_host_without_a_board_is_read_all_the_same(host: EmbeddedJob) -> None:
    """What is in flight is not known then."""
    (folder(host) / "state" / "leases").unlink()
    with opened_embedded(folder(host), reads=True) as opened:
        assert opened.snapshot is not None
        assert opened.snapshot.in_flight is None
        assert opened.frontier.pending == 2


def test_nothing_is_changed_in_a_job_that_its_host_holds(host: EmbeddedJob) -> None:
    """Whoever wants that is told who holds it."""
    with pytest.raises(JobInUse), opened_embedded(folder(host), reads=False):
        pass


def test_a_job_that_its_host_has_left_is_opened_itself(host: EmbeddedJob) -> None:
    """What is changed then stays; nothing else comes into the folder."""
    host.close()
    before = sorted(path.name for path in folder(host).iterdir())
    with opened_embedded(folder(host), reads=False) as opened:
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

    monkeypatch.setattr("anabranch.frontier.stores.livecopy.shutil.copyfile", full)
    with pytest.raises(DiskFull, match=r"/scratch/anabranch-"), opened_embedded(folder(host), reads=True):
        pass


def test_a_job_without_a_queue_is_told(tmp_path: Path) -> None:
    """Its program was ended before it had made one."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FORMAT_FILE).write_bytes(format_text(embedded=True))
    (tmp_path / "state" / "lock").touch()
    with pytest.raises(UsageError, match="its program begins it"), opened_embedded(tmp_path, reads=True):
        pass


def test_a_board_that_cannot_be_written_is_given_up(host: EmbeddedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs the view of others, not the crawl."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(leaseboard, "os", SimpleNamespace(pwrite=full, close=os.close))
    for held in list(host.frontier._leases):
        host.frontier.release(held[0])
    assert not (folder(host) / "state" / "leases").exists()
