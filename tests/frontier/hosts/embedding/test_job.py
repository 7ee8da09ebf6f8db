"""A Frontier inside a host program, and its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder, take_job_lock, who_holds
from anabranch.crawler.outcomes.errors import HostsJob, JobInUse
from anabranch.frontier.errors import FormatMismatch, PolicyError, StoreInUse, StoreUnavailable
from anabranch.frontier.hosts.embedding.job import EmbeddedJob, open_job
from anabranch.frontier.hosts.embedding.leaseboard import read_board
from anabranch.frontier.jobfolder import is_job
from anabranch.frontier.records import NEW, Candidate, Lease, Outcome, OutcomeKind, VerdictKind, name_id

URL = "http://a.test/"


def test_what_was_queued_is_there_when_the_folder_is_opened_again(tmp_path: Path) -> None:
    """Nothing else has to be said than the folder."""
    job = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    job.frontier.schedule([Candidate(URL, payload=b"mine")])
    job.close()
    job.close()
    again = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    assert again.frontier.pending == 1
    again.close()


@pytest.mark.parametrize(("expect", "warned"), [(1000, True), (20, False)])
def test_a_filter_that_is_planned_to_lose_more_than_it_may_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expect: int, warned: bool
) -> None:
    """Each time that the job is opened; one in memory is exact."""
    settings: dict[str, object] = {"filter": "smm", "levels": [1, 1], "expect": expect}
    EmbeddedJob(None, settings).close()
    assert not caplog.records
    EmbeddedJob(tmp_path / "job", settings).close()
    assert ("is expected to lose 8 of 1,000 URLs" in caplog.text) == warned


def test_without_a_folder_all_is_in_memory() -> None:
    """And nothing is left when it is closed."""
    job = EmbeddedJob(None, {})
    job.frontier.schedule([Candidate(URL)])
    assert job.frontier.pending == 1
    job.close()


def test_a_crawl_cannot_take_the_folder_of_a_host_that_runs(tmp_path: Path) -> None:
    """Both hold the same lock, and know the same mark."""
    folder = tmp_path / "job"
    job = EmbeddedJob(folder, {})
    assert is_job(folder)
    assert who_holds(folder)[0]
    with pytest.raises(JobInUse):
        take_job_lock(folder)
    with pytest.raises(StoreInUse, match="uses this job"):
        EmbeddedJob(folder, {})
    job.close()
    os.close(take_job_lock(folder))


def test_no_crawl_goes_on_with_the_job_of_a_host(tmp_path: Path) -> None:
    """It has no seeds and no scope, and the host's requests are nothing that a crawl could fetch."""
    folder = tmp_path / "job"
    EmbeddedJob(folder, {}).close()
    for fresh in (False, True):
        with pytest.raises(HostsJob, match="belongs to a program that embeds the Frontier"):
            JobFolder.open(folder, delete_old=fresh)
    EmbeddedJob(folder, {}).remove()
    assert not folder.exists()


def test_what_is_in_flight_is_told_while_the_job_is_open(tmp_path: Path) -> None:
    """Rows by their leases, gates by their rests; nothing is left of it at the end."""
    file = tmp_path / "job" / "state" / "leases"
    job = EmbeddedJob(tmp_path / "job", {"min_delay": 60, "max_delay": 60})
    job.frontier.schedule([Candidate(URL), Candidate(f"{URL}2"), Candidate("http://b.test/")])
    lease = leased(job)
    board = read_board(file)
    assert board is not None
    assert [(out.ordinal, out.since_s) for out in board.leases] == [(lease.ordinal, lease.since_s)]
    now_s = job.frontier.now_s()
    job.frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, now_s, now_s))
    board = read_board(file)
    assert board is not None
    assert (board.leases, list(board.rests)) == ([], [name_id(lease.gate)])
    assert list(board.rests.values()) == pytest.approx([now_s + 60], abs=1)
    job.frontier.release(leased(job))
    board = read_board(file)
    assert board is not None
    assert board.leases == []
    job.close()
    assert not file.exists()


def leased(job: EmbeddedJob) -> Lease:
    while (lease := job.frontier.lease()) is None:
        job.frontier.wait_until_durable()
    return lease


def test_what_cannot_be_opened_leaves_the_folder_free(tmp_path: Path) -> None:
    """The lock is given back, whatever was wrong."""
    folder = tmp_path / "job"
    with pytest.raises(PolicyError):
        EmbeddedJob(folder, {"policy": "nonsense"})
    EmbeddedJob(folder, {"policy": "host"}).close()
    with pytest.raises(FormatMismatch):
        EmbeddedJob(folder, {"policy": "bkdr:7"})
    EmbeddedJob(folder, {"policy": "host"}).close()


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    """In one line."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="choose a folder that can be written"):
        EmbeddedJob(tmp_path / "file", {})


def test_a_job_is_emptied_while_it_is_held(tmp_path: Path) -> None:
    """Rows and filter go; nobody can take the folder meanwhile."""
    job = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    job.frontier.schedule([Candidate(URL)])
    job.empty()
    assert job.frontier.schedule([Candidate(URL)]) == [NEW]
    assert job.frontier.pending == 1
    with pytest.raises(StoreInUse):
        EmbeddedJob(tmp_path / "job", {"policy": "host"})
    job.close()
    again = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    assert again.frontier.pending == 1
    again.close()


def test_a_filter_without_rows_is_not_believed(tmp_path: Path) -> None:
    """The process died in the middle of `empty`: what the filter knows nobody will fetch."""
    job = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    job.frontier.schedule([Candidate(URL)])
    job.close()
    (tmp_path / "job" / "state" / "frontier.db").unlink()
    again = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    assert again.frontier.schedule([Candidate(URL)]) == [NEW]
    again.close()


def test_a_job_that_is_removed_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    """A folder with nothing else in it goes, too; a second call is harmless."""
    for name, others in (("one", []), ("two", ["mine.txt"])):
        job = EmbeddedJob(tmp_path / name, {})
        for other in others:
            (tmp_path / name / other).touch()
        job.remove()
        job.remove()
        assert (tmp_path / name).exists() == bool(others)
        assert [file.name for file in (tmp_path / name).glob("*")] == others


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_an_opening_that_fails_leaves_no_folder_behind(tmp_path: Path) -> None:
    """Neither the job's nor those around it; a folder that was there stays."""
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "made" / "job", tmp_path / "there"):
        with pytest.raises(PolicyError):
            EmbeddedJob(folder, {"policy": "nobody.has:this"})
    assert tree(tmp_path) == {str(tmp_path / "there"): None}


def test_an_opening_that_fails_leaves_an_older_job_as_it_was(tmp_path: Path) -> None:
    """Its rows are there for the next opening."""
    job = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    job.frontier.schedule([Candidate(URL)])
    job.close()
    with pytest.raises(FormatMismatch):
        EmbeddedJob(tmp_path / "job", {"policy": "bkdr:7"})
    again = EmbeddedJob(tmp_path / "job", {"policy": "host"})
    assert again.frontier.pending == 1
    again.close()


def test_a_job_is_its_owners_alone(tmp_path: Path) -> None:
    """The folder, the state, and what says of it; whatever the umask."""
    before = os.umask(0)
    try:
        EmbeddedJob(tmp_path / "job", {}).close()
    finally:
        os.umask(before)
    modes = {
        name: (tmp_path / "job" / name).stat().st_mode & 0o777 for name in ("", "state", "order.toml", "state/lock")
    }
    assert modes == {"": 0o700, "state": 0o700, "order.toml": 0o600, "state/lock": 0o600}


async def test_the_folder_is_held_inside_the_block_and_free_behind_it(tmp_path: Path) -> None:
    """And what was scheduled is there when it is opened again."""
    async with open_job(tmp_path / "job", {"policy": "host"}) as frontier:
        assert frontier.schedule([Candidate(URL)])[0].kind is VerdictKind.NEW
        with pytest.raises(StoreInUse):
            EmbeddedJob(tmp_path / "job", {"policy": "host"})
    async with open_job(tmp_path / "job", {"policy": "host"}) as frontier:
        assert (await frontier.lease()).url == URL


async def test_a_block_that_fails_lets_go_too(tmp_path: Path) -> None:
    """Its error comes out as it is."""
    with pytest.raises(ZeroDivisionError):
        async with open_job(tmp_path / "job", {}):
            raise ZeroDivisionError
    EmbeddedJob(tmp_path / "job", {}).close()


async def test_settings_that_make_no_sense_open_nothing(tmp_path: Path) -> None:
    """Not even a folder."""
    with pytest.raises(PolicyError, match="'polite' is no setting"):
        async with open_job(tmp_path / "job", {"polite": True}):
            pytest.fail("it is open")
    assert not (tmp_path / "job").exists()
