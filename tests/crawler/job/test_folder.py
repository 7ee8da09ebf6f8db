"""The job folder: made once, held by one, started afresh without harm to others' files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anabranch.crawler.job import orderfile
from anabranch.crawler.job.folder import JobFolder, job_name, move_aside, wait_until_free, who_holds
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.outcomes.errors import (
    DiskFull,
    DiskReadOnly,
    ExitCode,
    ForeignJobFormat,
    JobInUse,
    JobUnfinished,
    NotAJobFolder,
    NotPermitted,
    OrderDamaged,
    StorageError,
    UsageError,
)
from anabranch.frontier.jobfolder import VERSION, is_job
from tests.patience import HANG_S

ROOT = Path(__file__).parents[3]

OPEN = """
import sys
from pathlib import Path
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.job.folder import JobFolder
try:
    with JobFolder.open(Path(sys.argv[1])) as job:
        job.write_order("x" * 200_000)
except CrawlerError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "jobs" / "portals"


def make(directory: Path) -> None:
    """A job as a crawl leaves it."""
    with JobFolder.open(directory) as job:
        job.write_order("[job]\n")
        job.crawl_log.write_text("a line\n")
        job.pages.write_text("{}\n")
        (job.reports / "seeds.txt").write_text("report")
        (job.state / "store").mkdir()
        (job.state / "store" / "frontier.db").write_text("rows")


def tree(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


NEW = {"state", "state/lock", "state/format.json", "logs", "reports"}


def test_a_new_job_has_its_folders_and_says_so(directory: Path) -> None:
    """Folders above it are made, too; an empty folder may be there already."""
    with JobFolder.open(directory) as job:
        assert not job.existed
        assert tree(directory) == NEW
        assert (job.directory, job.state, job.reports) == (directory, directory / "state", directory / "reports")
        assert (job.crawl_log, job.pages) == (directory / "logs" / "crawl.log", directory / "pages.jsonl")
    assert json.loads((directory / "state" / "format.json").read_text()) == {
        "format": "anabranch job",
        "version": VERSION,
    }
    (directory.parent / "empty").mkdir()
    JobFolder.open(directory.parent / "empty").close()


def test_a_job_is_gone_on_with(directory: Path) -> None:
    """Nothing of it is touched."""
    make(directory)
    before = tree(directory)
    with JobFolder.open(directory) as job:
        assert job.existed
    assert tree(directory) == before


def test_the_order_is_replaced_as_a_whole(directory: Path) -> None:
    """A reader sees the old one or the new one."""
    with JobFolder.open(directory) as job:
        job.write_order("old")
        job.write_order("ne\u00fc")
    assert (directory / "order.toml").read_text("utf-8").splitlines()[0] == "ne\u00fc"
    assert tree(directory) == NEW | {"order.toml", "state/order.toml"}


def test_fresh_removes_what_the_job_wrote_and_nothing_else(directory: Path) -> None:
    """A user's own files beside it stay, and so do files that a link leads to."""
    make(directory)
    (directory / "notes.txt").write_text("mine")
    (directory / "warcs").mkdir()
    elsewhere = directory.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    shutil.rmtree(directory / "reports")
    (directory / "reports").symlink_to(elsewhere)
    with JobFolder.open(directory, delete_old=True) as job:
        assert not job.existed
    assert tree(directory) == NEW | {"notes.txt", "warcs"}
    assert (elsewhere / "mine.txt").exists()


def test_fresh_on_a_new_folder_is_a_new_job(directory: Path) -> None:
    """It need not be known whether there is one."""
    with JobFolder.open(directory, delete_old=True, even_unfinished=False) as job:
        assert not job.existed
    assert tree(directory) == NEW


def test_an_unfinished_job_is_removed_only_if_that_is_meant(directory: Path) -> None:
    """A finished one needs no consent; opening it again makes it unfinished."""
    make(directory)
    before = tree(directory)
    with pytest.raises(JobUnfinished, match="leave out --delete-old to") as raised:
        JobFolder.open(directory, delete_old=True, even_unfinished=False)
    assert raised.value.exit_code is ExitCode.USAGE
    assert tree(directory) == before
    with JobFolder.open(directory) as job:
        job.mark_finished()
    JobFolder.open(directory).close()
    with pytest.raises(JobUnfinished):
        JobFolder.open(directory, delete_old=True, even_unfinished=False)
    with JobFolder.open(directory) as job:
        job.mark_finished()
    JobFolder.open(directory, delete_old=True, even_unfinished=False).close()
    assert tree(directory) == NEW


def test_a_removal_that_was_broken_off_is_gone_on_with(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a job is never resumed, with or without `fresh`."""
    make(directory)
    real_rmtree = shutil.rmtree

    def die(path: Path) -> None:
        real_rmtree(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            JobFolder.open(directory, delete_old=True)
    assert (directory / "pages.jsonl").exists()
    with JobFolder.open(directory) as job:
        assert not job.existed
    assert tree(directory) == NEW


def test_the_making_of_a_job_that_was_broken_off_is_gone_on_with(directory: Path) -> None:
    """Killed between its lock and its format: the folder is nobody else's."""
    (directory / "state").mkdir(parents=True)
    (directory / "state" / "lock").write_text("17\n")
    (directory / "state" / "format.json.new").write_text("{")
    with JobFolder.open(directory) as job:
        assert not job.existed
    assert tree(directory) == NEW


@pytest.mark.parametrize("name", ["thesis.txt", "state/other", "state"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_with_other_things_is_refused_and_left_alone(name: str, fresh: bool, directory: Path) -> None:
    """A wrong --job must not mix a crawl with somebody's files, let alone remove them."""
    (directory / name).parent.mkdir(parents=True)
    (directory / name).write_text("mine")
    before = tree(directory)
    with pytest.raises(NotAJobFolder, match=f"^{directory}: is not a job folder; name another job$") as raised:
        JobFolder.open(directory, delete_old=fresh)
    assert raised.value.exit_code is ExitCode.BAD_ORDER
    assert tree(directory) == before


def test_a_file_is_no_job_folder(tmp_path: Path) -> None:
    """A seed file given as --job, for instance."""
    (tmp_path / "seeds.txt").write_text("http://a.test/")
    with pytest.raises(NotAJobFolder, match="is not a folder"):
        JobFolder.open(tmp_path / "seeds.txt")
    with pytest.raises(NotAJobFolder, match=f"^{tmp_path}/seeds.txt: is not a folder; name another job$"):
        JobFolder.open(tmp_path / "seeds.txt" / "below" / "it")


def test_a_job_of_a_newer_version_is_refused_and_can_be_started_afresh(directory: Path) -> None:
    """The line names both versions, and no way that would move or delete the job."""
    make(directory)
    (directory / "state" / "format.json").write_text('{"format": "anabranch job", "version": 99}')
    with pytest.raises(
        ForeignJobFormat,
        match=r"99 by a newer version, this one reads up to \d+; go on with the newer version, or name another job$",
    ) as raised:
        JobFolder.open(directory)
    assert raised.value.exit_code is ExitCode.BAD_ORDER
    assert (directory / "pages.jsonl").exists()
    with JobFolder.open(directory, delete_old=True) as job:
        assert not job.existed
    assert json.loads((directory / "state" / "format.json").read_text())["version"] == VERSION


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": "other", "version": 1}', '{"format": "anabranch job"}', "\xff"]
)
def test_a_format_that_is_not_ours_is_refused_even_with_fresh(text: str, directory: Path) -> None:
    """The files may belong to another program, so nothing is deleted or moved."""
    make(directory)
    (directory / "state" / "format.json").write_text(text, "latin-1")
    before = tree(directory)
    with pytest.raises(ForeignJobFormat, match=f"^{directory}/state/format.json: "):
        JobFolder.open(directory, delete_old=True)
    assert tree(directory) == before
    with pytest.raises(ForeignJobFormat):  # and not JobInUse: the lock was given back
        JobFolder.open(directory)


def test_a_lock_that_cannot_be_written_is_no_leak(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk even the pid does not fit; the job is free again after that."""

    def refuse(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(DiskFull, match=f"^{directory}/state/lock: no space left on device; "):
            JobFolder.open(directory)
    JobFolder.open(directory).close()


def in_a_small_disk(mount: Path, options: str) -> str:
    """Open a job on a tmpfs with these mount options, and return the error that it prints; skip where rights are missing."""
    mount.mkdir()
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" && exec "$3" -c "$4" "$2/job"'
    command = ["unshare", "-Urm", "sh", "-c", script, "sh", options, str(mount), sys.executable, OPEN]
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANG_S)
    return done.stdout.strip()


def test_a_full_disk_is_one_line_with_the_path(tmp_path: Path) -> None:
    """Said by a real full disk."""
    said = in_a_small_disk(tmp_path / "disk", "size=64k")
    assert said.startswith(
        f"{DiskFull.__name__} {tmp_path}/disk/job/order.toml: no space left on device; free some space"
    )


def test_a_read_only_disk_is_one_line_with_the_path(tmp_path: Path) -> None:
    """Said by a real read-only disk."""
    said = in_a_small_disk(tmp_path / "disk", "ro")
    assert said.startswith(f"{DiskReadOnly.__name__} {tmp_path}/disk/job: read-only file system; mount it writable")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_one_line_with_the_path(tmp_path: Path) -> None:
    """Without the right to write, nothing can be kept."""
    tmp_path.chmod(0o500)
    with pytest.raises(NotPermitted, match="permission denied; change the permissions"):
        JobFolder.open(tmp_path / "job")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("flags", "arguments", "name"),
    [
        ({"name": "mine"}, ["seeds/portals.txt"], "mine"),
        ({}, ["seeds/portals.txt"], "portals"),
        ({}, ["http://b.test/", "seeds/portals.txt"], "portals"),
        ({"seed_files": ["lists/news.de.txt"]}, [], "news.de"),
        ({}, ["http://www.a.test:8080/x", "http://b.test/"], "www.a.test"),
        ({}, ["a.test"], "a.test"),
        ({}, ["-", "mailto:x", "http://b.test/"], "b.test"),
        ({"seeds": ["http://c.test/"]}, [], "c.test"),
        ({}, ["http://[::1]:8080/"], "1"),
        ({}, ["seeds"], "seeds"),
        ({}, ["http://a.test/" + "x" * 5000], "a.test"),
        ({}, ["-"], "crawl"),
        ({}, [], "crawl"),
    ],
)
def test_a_job_is_named_by_the_order_else_a_seed_file_else_a_seed(
    flags: dict[str, object], arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated command finds its job again; the name is always one folder."""
    monkeypatch.chdir(tmp_path)
    Path("seeds").mkdir()
    Path("seeds/portals.txt").write_text("http://a.test/")
    assert job_name(load_order(None, flags).job, arguments) == name


def test_a_folder_is_a_job_if_it_says_so(tmp_path: Path) -> None:
    """Whatever else it holds; a path that no file can have is none."""
    JobFolder.open(tmp_path / "job").close()
    assert is_job(tmp_path / "job")
    assert not any(map(is_job, (tmp_path, tmp_path / "nosuch", tmp_path / ("x" * 5000), Path("/dev/null"), Path("\0"))))


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_a_job_is_its_owners_alone(directory: Path, umask: int) -> None:
    """Its folder, its state, its order and its lock: nobody else can hold it, whatever the umask."""
    before = os.umask(umask)
    try:
        make(directory)
    finally:
        os.umask(before)
    for path in (directory, directory / "state"):
        assert path.stat().st_mode & 0o777 == 0o700
    for name in ("order.toml", "state/lock", "state/format.json"):
        assert (directory / name).stat().st_mode & 0o777 == 0o600
    assert directory.parent.stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_folder_that_its_owner_opened_stays_open(directory: Path) -> None:
    """Modes of what exists are not touched, and an older job with wider ones goes on."""
    make(directory)
    directory.chmod(0o755)
    (directory / "state").chmod(0o755)
    (directory / "state" / "lock").chmod(0o644)
    with JobFolder.open(directory) as job:
        assert job.existed
    assert [path.stat().st_mode & 0o777 for path in (directory, directory / "state")] == [0o755, 0o755]


HOLD = """
import sys
from pathlib import Path
from anabranch.crawler.job.folder import JobFolder
job = JobFolder.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_pid_of_the_first(directory: Path) -> None:
    """Until the first ends, however it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(JobInUse, match=f"^{directory}: in use by process {process.pid}; ") as raised:
            JobFolder.open(directory, delete_old=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert raised.value.pid == process.pid
    assert raised.value.exit_code is ExitCode.STORE_OR_JOB_IN_USE
    with JobFolder.open(directory) as job:
        assert job.existed
        assert (job.state / "lock").read_text() == f"{os.getpid()}\n"


def test_the_lock_of_an_older_job_becomes_its_owners_alone(directory: Path) -> None:
    """Else another user could take it."""
    with JobFolder.open(directory) as job:
        lock = job.state / "lock"
    lock.chmod(0o644)
    with JobFolder.open(directory):
        assert lock.stat().st_mode & 0o777 == 0o600


def test_one_process_cannot_take_a_job_twice(directory: Path) -> None:
    """Two crawls in one process are two crawls; after closing, which may be done twice, the job is free."""
    job = JobFolder.open(directory)
    with pytest.raises(JobInUse):
        JobFolder.open(directory)
    (job.state / "lock").write_text("")
    with pytest.raises(JobInUse, match="another process") as raised:
        JobFolder.open(directory)
    assert raised.value.pid is None
    job.close()
    job.close()
    JobFolder.open(directory).close()


def test_what_a_lock_file_says_is_no_lock(directory: Path) -> None:
    """A process that was killed leaves its pid, which another process may have by now."""
    JobFolder.open(directory).close()
    (directory / "state" / "lock").write_text("1\n and more\n")
    with JobFolder.open(directory) as job:
        assert (job.state / "lock").read_text() == f"{os.getpid()}\n"


def test_who_holds_a_job_is_told_without_taking_it(tmp_path) -> None:
    """Nobody, or a process by its id."""
    with JobFolder.open(tmp_path / "job"):
        assert who_holds(tmp_path / "job") == (True, os.getpid())
    assert who_holds(tmp_path / "job") == (False, None)
    with pytest.raises(StorageError):
        who_holds(tmp_path / "none")


def test_one_can_wait_until_a_job_is_free(tmp_path) -> None:
    """The system wakes whoever waits."""
    with JobFolder.open(tmp_path / "job"):
        waiting = threading.Thread(target=wait_until_free, args=(tmp_path / "job",))
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
    waiting.join()


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
    (job / "state" / "job.db").write_text("something\n")
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


def test_a_job_that_is_held_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """Somebody only looks at it; without patience it is in use at once."""
    held = JobFolder.open(tmp_path / "job")
    with pytest.raises(JobInUse):
        JobFolder.open(tmp_path / "job")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(JobFolder.open, tmp_path / "job", patience_s=HANG_S)
        held.close()
        waiting.result().close()


MOVED = "news.previous-20260921T141320Z"


@pytest.mark.parametrize("name", ["-x", "--help", "-", "news.previous-1", MOVED, f"{MOVED}-2"])
def test_a_new_job_has_no_name_of_an_option_or_of_a_moved_job(tmp_path, name):
    """Nothing is made; a job that has such a name already is opened, and moved aside."""
    with pytest.raises(UsageError, match="choose one that does not"):
        JobFolder.open(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with JobFolder.open(tmp_path / "news") as job:
        job.begin()
    (tmp_path / "news").rename(tmp_path / name)
    with JobFolder.open(tmp_path / name) as job:
        assert job.existed
    assert move_aside(tmp_path / name, 0.0) is not None


@pytest.mark.parametrize("name", ["a-x", "previous-1", "news.previous", "news.previous-one", "news.previous-1.html"])
def test_other_names_stay(tmp_path, name):
    """Only the begin and the end of a name count."""
    JobFolder.open(tmp_path / name).close()
