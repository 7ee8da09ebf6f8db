"""`blocking.Process` behaves as `subprocess.Popen` does, forked or fresh."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance import blocking, forkserver
from tests.acceptance.command import environment
from tests.patience import HANG_S

PROGRAM = """
import sys
print("out", flush=True)
print("err", file=sys.stderr, flush=True)
sys.stdin.read()
print("the end of its input")
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def _program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)


def test_output_errors_and_exit_code_are_had_at_the_end(tmp_path: Path) -> None:
    """A line that was read before is not in what `communicate` gives, which ends the input."""
    with blocking.Process(["program.py"], cwd=tmp_path, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "out\n"
        assert process.communicate(timeout=HANG_S) == ("the end of its input\n", "err\n")
    assert process.returncode == 7


def test_a_stream_may_be_a_file(tmp_path: Path) -> None:
    """Tests of full disks and of closed readers pass one."""
    with (
        (tmp_path / "said").open("w") as said,
        blocking.Process(["program.py"], cwd=tmp_path, env=environment(), stdout=said) as process,
    ):
        assert process.communicate(timeout=HANG_S)[1] == "err\n"
    assert (tmp_path / "said").read_text() == "out\nthe end of its input\n"


def test_a_signal_ends_it_and_is_its_code(tmp_path: Path) -> None:
    """One that comes after the end was seen goes nowhere."""
    with blocking.Process(["program.py"], cwd=tmp_path, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "out\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_S) == -signal.SIGTERM
        process.send_signal(signal.SIGTERM)


@pytest.mark.skipif(not forkserver.FORKS, reason="the fork server waits for a process, nobody for a fresh one")
def test_a_process_that_has_ended_unseen_is_not_killed(tmp_path: Path) -> None:
    """The system has forgotten its number by then, at the end of the `with`, too; its exit code is its own."""
    with blocking.Process(["-c", "print(1)"], cwd=tmp_path, env=environment(), preload=()) as process:
        while Path(f"/proc/{process.pid}").exists():
            pass
    assert process.returncode == 0


def test_what_hangs_is_given_up(tmp_path: Path) -> None:
    """`wait` raises after the time that was given."""
    with (
        blocking.Process(["program.py"], cwd=tmp_path, env=environment()) as process,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        process.wait(timeout=0.01)


def test_one_may_be_talked_to_line_by_line_and_killed(tmp_path: Path) -> None:
    """A program may be given as text, with its arguments. It has ended when `kill` returns, and at the end of the `with`."""
    program = "import os, sys\nprint(os.getpid(), sys.argv, flush=True)\n"
    program += "for line in sys.stdin:\n    print(line, end='', flush=True)"
    command = ["-c", program, "a"]
    with blocking.Process(command, cwd=tmp_path, env=environment(), preload=()) as talking:
        assert talking.stdin is not None
        assert talking.stdout is not None
        assert talking.stdout.readline() == f"{talking.pid} ['-c', 'a']\n"
        talking.stdin.write("told\n")
        talking.stdin.flush()
        assert talking.stdout.readline() == "told\n"
        with blocking.Process(command, cwd=tmp_path, env=environment(), preload=()) as other:
            assert other.poll() is None
        assert other.returncode == -signal.SIGKILL
        talking.kill()
        assert talking.poll() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(talking.pid, 0)
