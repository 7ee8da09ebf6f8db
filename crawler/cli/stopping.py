"""How a command that reads ends in order: the first SIGINT, SIGTERM or SIGHUP asks it to, the second one makes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Self

from anabranch.crawler.outcomes.exits import ExitCode

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """While entered, signals are noted; `wake` is a descriptor that has something to read from the first signal on.

    A SIGHUP that the caller has told us to ignore (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self.is_set = False  #: a signal came
        #: What happens at the first signal, and what is cleaned up at the second before the process is left at once.
        self.at_first: Callable[[], object] = _nothing
        self.at_second: Callable[[], object] = _nothing

    def __enter__(self) -> Self:
        self.wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        # The byte is written in the very moment of the signal: a wait that begins just then ends, too.
        self._waker_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        heeded = [number for number in _SIGNALS if not (is_nohup and number == signal.SIGHUP)]
        self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._waker_before)
        os.close(self.wake)
        os.close(self._waker)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set:
            self.at_second()
            os._exit(ExitCode.FORCED)
        self.is_set = True
        self.at_first()


def _nothing() -> None:
    """Nobody asked for anything."""
