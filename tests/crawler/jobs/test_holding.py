"""A job is held by one process at a time, and by nobody once that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from anabranch.crawler.jobs.holding import until_free, who_holds
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.outcomes.errors import JobInUse, StorageError
from anabranch.crawler.outcomes.exits import ExitCode

ROOT = Path(__file__).parents[3]

HOLD = """
import sys
from pathlib import Path
from anabranch.crawler.jobs.job import JobFolder
job = JobFolder.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "jobs" / "portals"


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
        waiting = threading.Thread(target=until_free, args=(tmp_path / "job",))
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
    waiting.join()
