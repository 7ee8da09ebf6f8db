"""The signals that a running crawl heeds, as calls on its event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Each of them asks the crawl to end. SIGHUP: the terminal has gone.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def heeded(end: Callable[[], None], tell: Callable[[], None], *, is_last: bool = False) -> Iterator[None]:
    """While inside, SIGINT, SIGTERM and SIGHUP call `end`, SIGUSR1 calls `tell`.

    Afterwards SIGTERM does again what it did before; if the process does nothing then but end (`is_last`), it is ignored: the
    exit code is known. A SIGHUP that whoever started us has us ignore (`nohup`) stays ignored. A SIGUSR1 that comes too late is
    ignored: a question does not end a program.
    """
    loop = asyncio.get_running_loop()
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    earlier = signal.getsignal(signal.SIGTERM)
    calls = {number: end for number in ENDING if not (is_nohup and number == signal.SIGHUP)}
    calls[signal.SIGUSR1] = tell
    for number, call in calls.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in calls:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if is_last else earlier)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
