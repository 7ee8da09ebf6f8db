"""Errors become one line and an exit code; whether a message can be written is not what a run depends on."""

from __future__ import annotations

import errno
import io
import os
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.crawler.cli import terminal
from anabranch.crawler.cli.terminal import (
    StopSignals,
    guarded,
    keep_streams,
    live_totals,
    progress_line,
    say,
    with_flag,
)
from anabranch.crawler.outcomes.errors import ExitCode, UsageError
from tests.acceptance.command import environment
from tests.patience import HANG_S


def test_a_line_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output is for what the command was asked for."""
    say("a word")
    assert capsys.readouterr() == ("", "a word\n")


def test_a_closed_standard_error_takes_the_line_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not go to standard output in its place."""
    monkeypatch.setattr(sys, "stderr", None)
    say("a word")
    monkeypatch.undo()
    assert capsys.readouterr() == ("", "")


def test_a_standard_error_that_takes_nothing_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full, or without a reader: the run goes on."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    say("a word")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("levels (9, 9): too many", "--levels (9, 9): too many"),
        ("levels", "--levels"),
        ("levels_of (9, 9)", "levels_of (9, 9)"),
        ("the levels are odd", "the levels are odd"),
    ],
)
def test_a_parameter_that_is_told_first_gets_its_options_name(words: str, shown: str) -> None:
    """The rest of the words is as it was."""
    assert with_flag(words, {"levels": "--levels"}) == shown


def test_the_line_says_how_far_how_fast_and_how_many() -> None:
    """The part that is done only if the end is known."""
    assert progress_line(1_000_000, 900_000, 2.0, None) == "2.0s · 1,000,000 lines (500,000/s) · 900,000 new"
    assert progress_line(10, 9, 65.0, 0.256) == "1m 5s · 10 lines (0/s) · 9 new · 26%"
    assert progress_line(0, 0, 0.0, None) == "0ms · 0 lines (0/s) · 0 new"


class Screen(io.StringIO):
    """Standard error that is a terminal, or not."""

    is_terminal = True

    def isatty(self) -> bool:
        return self.is_terminal


def shown(monkeypatch: pytest.MonkeyPatch, fd: int, *, terminal: bool = True, quiet: bool = False) -> str:
    """Return the output of three reports on standard error."""
    screen = Screen()
    screen.is_terminal = terminal
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("anabranch.crawler.cli.terminal.REFRESH_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with live_totals(fd, quiet=quiet) as show:
        for lines in (1, 2, 3):
            show(lines, lines, 10 * lines)
    monkeypatch.undo()
    return screen.getvalue()


def test_a_terminal_shows_it_with_the_part_of_the_file_that_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd
) -> None:
    """And it is wiped away in the end."""
    (tmp_path / "urls").write_bytes(b"x" * 40)
    with (tmp_path / "urls").open("rb") as file:
        text = shown(monkeypatch, file.fileno())
    assert "3 lines" in text
    assert "75%" in text
    assert text.rstrip("\n").endswith("\x1b[2K"), repr(text)


def test_of_a_pipe_the_end_is_not_known(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    """Then no part is told."""
    reading, writing = os.pipe()
    text = shown(monkeypatch, reading)
    assert "3 lines" in text
    assert "%" not in text
    os.close(reading)
    os.close(writing)


def test_elsewhere_nothing_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd) -> None:
    """In a log, to who wants quiet, and where the lines themselves come from a terminal."""
    (tmp_path / "urls").write_bytes(b"x")
    ours, theirs = os.openpty()
    with (tmp_path / "urls").open("rb") as file:
        assert shown(monkeypatch, file.fileno(), terminal=False) == ""
        assert shown(monkeypatch, file.fileno(), quiet=True) == ""
        assert shown(monkeypatch, theirs) == ""
    os.close(ours)
    os.close(theirs)


REPOSITORY = Path(__file__).resolve().parents[3]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_wakes_who_waits(number: int) -> None:
    """Nothing is broken off; what was to happen then has happened."""
    happened: list[str] = []
    with StopSignals() as stop:
        stop.on_first.append(lambda: happened.append("asked"))
        assert not stop.is_set
        assert select.select([stop.wake], [], [], 0)[0] == []
        os.kill(os.getpid(), number)
        assert select.select([stop.wake], [], [], 10)[0] == [stop.wake]
        assert (stop.is_set, happened) == (True, ["asked"])


def test_afterwards_signals_are_as_they_were() -> None:
    """A command is not the last thing that a process does."""
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopSignals() as stop:
        wake = stop.wake
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(wake)


def test_a_hangup_that_is_to_be_ignored_is_ignored() -> None:
    """`nohup anabranch dedup` goes on when its terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_signal_cleans_up_and_leaves() -> None:
    """At once, with 13; what stands behind it is not reached."""
    program = """
import os, signal
from anabranch.crawler.cli.terminal import StopSignals
with StopSignals() as stop:
    stop.on_second.append(lambda: os.write(1, b"cleaned"))
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    os.write(1, b"not reached")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, check=False, timeout=HANG_S
    )
    assert (ended.returncode, ended.stdout) == (13, b"cleaned"), ended.stderr


#: Opens a file, after which nothing said may be found in it; then talks on standard error as logs and displays do.
TALKING = """
import os, sys
from anabranch.crawler.cli.terminal import keep_streams
keep_streams()
file = os.open("file", os.O_RDWR | os.O_CREAT)
assert file > 2, file
for _ in range(3):
    print("said", "\\udcff", file=sys.stderr, flush=True)
assert not sys.stderr.isatty()
os.write(2, b"by a library in C")
os._exit(0 if os.fstat(file).st_size == 0 else 1)
"""


@pytest.mark.parametrize("streams", ["2>&-", "0<&- >&- 2>&-", "2>/dev/full", "2> >(true)", "2>&1 | true", "2>said"])
def test_nothing_that_is_said_fails_or_lands_in_a_file_of_ours(tmp_path, streams) -> None:
    """The descriptors 0 to 2 are taken before the first file is opened."""
    command = f'set -o pipefail; {shlex.quote(sys.executable)} -c "$TALKING" {streams}'
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment(TALKING=TALKING),
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    if streams == "2>said":
        assert (tmp_path / "said").read_text() == "said \\udcff\n" * 3 + "by a library in C"


def test_a_standard_error_that_is_not_the_processs_own_is_left_alone(monkeypatch) -> None:
    """Tests and programs that embed the crawler replace it by one of their own."""
    mine = io.StringIO()
    monkeypatch.setattr(sys, "stderr", mine)
    keep_streams()
    assert sys.stderr is mine


def raising(error: BaseException):
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no\x1b[2J"), ExitCode.USAGE, "anabranch: no\\x1b[2J\n"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, ""),
    ],
)
def test_a_foreseeable_error_is_one_line_that_no_terminal_obeys(capsys, error, code, said) -> None:
    """An interrupt needs none."""
    assert guarded(raising(error)) == code
    assert capsys.readouterr() == ("", said)


def interrupt() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)


def test_a_signal_that_comes_after_the_outcome_does_not_change_it(monkeypatch) -> None:
    """Such as while the line of an error is written."""
    monkeypatch.setattr(terminal, "say", lambda _: interrupt())
    assert guarded(raising(UsageError("no"))) == ExitCode.USAGE
    assert guarded(lambda: 3) == 3
    interrupt()


def test_a_long_error_is_cut_in_its_middle(capsys) -> None:
    """It repeats what was typed."""
    guarded(raising(UsageError("x" * 5000)))
    assert len(capsys.readouterr().err) < 1100


def test_a_defect_is_not_hidden() -> None:
    """It keeps its traceback."""
    with pytest.raises(ZeroDivisionError):
        guarded(raising(ZeroDivisionError()))


def test_what_the_command_says_of_itself_is_its_code() -> None:
    """Nothing is done."""
    assert (guarded(lambda: None), guarded(lambda: 1)) == (ExitCode.DONE, 1)
