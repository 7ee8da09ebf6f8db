"""The signals that a running crawl heeds, as calls on its event loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What is no matter of life and death: outside of a crawl it is ignored.
HARMLESS = (signal.SIGUSR1, signal.SIGUSR2)


def ignore_harmless() -> None:
    """Until the crawl answers them: a question does not end a program."""
    for number in HARMLESS:
        signal.signal(number, signal.SIG_IGN)


def has_terminal() -> bool:
    """A terminal controls this process, and may go: a SIGHUP says that it has."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextmanager
def heeded(
    end: Callable[[], None], tell: Callable[[], None], reopen: Callable[[], None], *, is_last: bool = False
) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM call `end`, SIGUSR1 calls `tell`, SIGUSR2 `reopen`. SIGHUP calls `end` in a process with
    a terminal, which has gone then, else `reopen`, as daemons do.

    Afterwards SIGTERM does again what it did before. If the process does nothing then but end (`is_last`), its exit code is
    known: SIGINT, SIGTERM and SIGHUP are ignored. A SIGHUP that whoever started us has us ignore (`nohup`) stays ignored. A
    SIGUSR1 or SIGUSR2 that comes too late is ignored.
    """
    loop = asyncio.get_running_loop()
    earlier = signal.getsignal(signal.SIGTERM)
    calls = {signal.SIGINT: end, signal.SIGTERM: end, signal.SIGUSR1: tell, signal.SIGUSR2: reopen}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        calls[signal.SIGHUP] = end if has_terminal() else reopen
    for number, call in calls.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in calls:
            loop.remove_signal_handler(number)
            if is_last:
                signal.signal(number, signal.SIG_IGN)
        if not is_last:
            signal.signal(signal.SIGTERM, earlier)
        ignore_harmless()
