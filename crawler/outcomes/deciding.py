"""From the moment that a command's outcome is known, no signal changes its exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: What asks a process to end.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def decided() -> None:
    """The outcome is known, and the process does nothing more but say so and end: ignore what would interrupt it.

    A command that runs in another thread than the main one hears no signals.
    """
    with suppress(ValueError):
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def deciding() -> Iterator[None]:
    """What is inside decides the outcome, whether it returns or fails."""
    try:
        yield
    finally:
        decided()
