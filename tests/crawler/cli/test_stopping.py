"""The first signal asks, the second one makes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.crawler.cli.stopping import StopSignals

REPOSITORY = Path(__file__).resolve().parents[3]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_wakes_who_waits(number: int) -> None:
    """Nothing is broken off; what was to happen then has happened."""
    happened: list[str] = []
    with StopSignals() as stop:
        stop.at_first = lambda: happened.append("asked")
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
from anabranch.crawler.cli.stopping import StopSignals
with StopSignals() as stop:
    stop.at_second = lambda: os.write(1, b"cleaned")
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    os.write(1, b"not reached")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, check=False, timeout=50
    )
    assert (ended.returncode, ended.stdout) == (13, b"cleaned"), ended.stderr
