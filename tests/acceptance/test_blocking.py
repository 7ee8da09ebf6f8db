"""Forked processes for tests that block."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance import blocking
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
    with blocking.start(["program.py"], cwd=tmp_path, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "out\n"
        assert process.communicate(timeout=HANG_S) == ("the end of its input\n", "err\n")
    assert process.returncode == 7


def test_a_stream_may_be_a_file(tmp_path: Path) -> None:
    """As a full disk is one."""
    with (
        (tmp_path / "said").open("w") as said,
        blocking.start(["program.py"], cwd=tmp_path, env=environment(), stdout=said) as process,
    ):
        assert process.communicate(timeout=HANG_S)[1] == "err\n"
    assert (tmp_path / "said").read_text() == "out\nthe end of its input\n"


def test_a_signal_ends_it_and_is_its_code(tmp_path: Path) -> None:
    """One that comes after the end was seen goes nowhere."""
    with blocking.start(["program.py"], cwd=tmp_path, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "out\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_S) == -signal.SIGTERM
        process.send_signal(signal.SIGTERM)


def test_what_hangs_is_given_up(tmp_path: Path) -> None:
    """After the time that was given."""
    with (
        blocking.start(["program.py"], cwd=tmp_path, env=environment()) as process,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        process.wait(timeout=0.01)
