"""The folder of a host program's job: whose it is, who holds it, and what is left of it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.frontier.composition import open_frontier
from anabranch.frontier.errors import FormatMismatch, StoreInUse, StoreUnavailable
from anabranch.frontier.hosts.embedding.hostfolder import HostFolder
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.jobfolder import is_embedded, take_lock
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.records import Candidate
from tests.acceptance.blocking import Process


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder, and what is in the files."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_job_of_a_crawl_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    """Its order, its rows and its mark are the crawl's."""
    folder = tmp_path / "job"
    with JobFolder.open(folder) as job:
        job.write_order('[job]\nseeds = ["http://a.test/"]\n')
        with open_frontier(job.state, FrontierOrder(policy="host")) as frontier:
            frontier.schedule([Candidate("http://a.test/")])
    before = contents(folder)
    with pytest.raises(FormatMismatch, match="the job of a crawl is there"):
        EmbeddedJob(folder, {"policy": "host"})
    assert contents(folder) == before


@pytest.mark.parametrize(
    "files",
    [
        {"order.toml": "[job]"},
        {"order.toml": "[job]", "state/lock": ""},
        {"state/frontier.db.bak": "mine"},
        {"state/seen/mine": "x", "state/lock": ""},
        {"state/frontier.db": "", "state/lock": ""},
        {"state": "a file"},
        {"state/format.json": "no job"},
        {"state/format.json": '{"format": "anabranch job", "version": 99, "embedded": true}'},
    ],
)
def test_what_is_not_its_own_is_refused_and_left_as_it_was(tmp_path: Path, files: dict[str, str]) -> None:
    """An order or a state that no host's job has written; a job of another version."""
    write(tmp_path, files)
    before = contents(tmp_path)
    with pytest.raises(FormatMismatch, match="choose another folder"):
        EmbeddedJob(tmp_path, {})
    assert contents(tmp_path) == before


def test_what_became_a_crawls_job_before_it_was_held_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at again under the lock."""
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        JobFolder.open(tmp_path).close()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(FormatMismatch, match="the job of a crawl"):
        EmbeddedJob(tmp_path, {})
    assert not is_embedded(tmp_path)
    JobFolder.open(tmp_path).close()


def test_files_beside_a_job_are_nobodys_business(tmp_path: Path) -> None:
    """A host keeps its own things there."""
    write(tmp_path, {"mine.txt": "mine"})
    EmbeddedJob(tmp_path, {}).close()
    job = EmbeddedJob(tmp_path, {})
    write(tmp_path, {"state/frontier.db.bak": "mine", "state/mine": "mine"})
    job.empty()
    job.remove()
    assert {name for name, text in contents(tmp_path).items() if text == b"mine"} == {
        "mine.txt",
        "state/frontier.db.bak",
        "state/mine",
    }
    assert len(contents(tmp_path)) == 4


KILLED = """
import os, sys
from pathlib import Path
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
steps = int(sys.argv[2])
def audit(event, arguments):
    global steps
    if event in {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"} and sys.argv[1] in str(arguments[0]):
        steps -= 1
        if steps < 0:
            os._exit(9)
job = EmbeddedJob(Path(sys.argv[1]), {}) if sys.argv[3] == "remove" else None
sys.addaudithook(audit)
if job is None:
    EmbeddedJob(Path(sys.argv[1]), {}).close()
else:
    job.remove()
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["open", "remove"])
def test_a_job_that_was_killed_in_its_making_or_its_removal_opens_again(tmp_path: Path, verb: str) -> None:
    """Before and after whatever touches the folder."""
    (program := tmp_path / "killed.py").write_text(KILLED)
    steps = 0
    while killed(program, tmp_path / f"job{steps}", steps, verb):
        EmbeddedJob(tmp_path / f"job{steps}", {}).remove()
        assert not (tmp_path / f"job{steps}").exists()
        steps += 1 if steps < FIRST_STEPS else STRIDE
    assert steps > FIRST_STEPS


#: All steps up to the mark of the job, then some of the many that make the filter.
FIRST_STEPS, STRIDE = 6, 199


def killed(program: Path, folder: Path, steps: int, verb: str) -> bool:
    """Whether a process was killed before it had made so many steps and ended by itself."""
    arguments = [str(program), str(folder), str(steps), verb]
    preload = ("anabranch.frontier.hosts.embedding.job",)
    with Process(arguments, cwd=folder.parent, stdout=None, stderr=None, preload=preload) as process:
        code = process.wait()
    assert code in {0, 9}
    return code == 9


def test_a_lock_whose_file_was_removed_keeps_others_out_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opened the file before its removal and gets the lock later locks the file that is there then."""
    first = EmbeddedJob(tmp_path, {})
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        (tmp_path / "state" / "mine").touch()  # so that the folder stays
        first.remove()
        (tmp_path / "state" / "mine").unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    held = take_lock(tmp_path)
    with pytest.raises(StoreInUse):
        EmbeddedJob(tmp_path, {})
    os.close(held)
    EmbeddedJob(tmp_path, {}).remove()


def test_a_folder_that_goes_while_it_is_taken_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last holder removes it; if it never stays it is told."""
    folder = tmp_path / "job"
    first = EmbeddedJob(folder, {})
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.remove()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    HostFolder(folder).let_go()
    EmbeddedJob(folder, {}).remove()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "state").mkdir()
    (tmp_path / "link" / "state" / "lock").symlink_to(tmp_path / "nowhere" / "lock")
    with pytest.raises(StoreUnavailable, match="choose a folder that can be written"):
        EmbeddedJob(tmp_path / "link", {})
