"""Words beside the output: whether they can be written is not what a run depends on."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from anabranch.crawler.cli.saying import say, with_flag


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
