"""How far a run is: on a terminal, and nowhere else."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from anabranch.crawler.cli import live_totals as module
from anabranch.crawler.cli.live_totals import live_totals, progress_line


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
    """What is written to standard error by three reports."""
    screen = Screen()
    screen.is_terminal = terminal
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(module, "REFRESH_S", 0.0)
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
