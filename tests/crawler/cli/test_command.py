"""From an error of a command to one line and an exit code."""

from __future__ import annotations

import os
import signal

import pytest

from anabranch.crawler.cli import command
from anabranch.crawler.cli.command import guarded
from anabranch.crawler.outcomes.errors import ExitCode, UsageError


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
    monkeypatch.setattr(command, "say", lambda _: interrupt())
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
