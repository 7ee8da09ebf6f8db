"""The signals of a running crawl, as calls on its event loop. `controller` decides what they do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Signals that ask something and end nothing: ignored outside of a crawl.
HARMLESS = (signal.SIGUSR1, signal.SIGUSR2)


def ignore_harmless() -> None:
    """Ignore them until the crawl answers them; by default they would end the program."""
    for number in HARMLESS:
        signal.signal(number, signal.SIG_IGN)


def has_terminal() -> bool:
    """Whether a terminal controls this process; a SIGHUP then means that it was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextmanager
def handle_signals(
    end: Callable[[], None], log_status: Callable[[], None], reopen: Callable[[], None], *, is_last: bool = False
) -> Iterator[None]:
    """While entered, SIGINT and SIGTERM call `end`, SIGUSR1 `log_status`, SIGUSR2 `reopen`. SIGHUP calls `end` in a process
    with a terminal, which has closed then, else `reopen`, as in daemons; it stays ignored if it was from the start (`nohup`).

    Afterwards SIGTERM has its earlier handler. In the last crawl of a process (`is_last`) all stay ignored, since the exit code
    is decided.
    """
    loop = asyncio.get_running_loop()
    earlier = signal.getsignal(signal.SIGTERM)
    calls = {signal.SIGINT: end, signal.SIGTERM: end, signal.SIGUSR1: log_status, signal.SIGUSR2: reopen}
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
