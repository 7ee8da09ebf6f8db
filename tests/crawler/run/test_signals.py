"""The signals of a running crawl."""

import os
import signal
from contextlib import AbstractContextManager
from functools import partial

import pytest

from anabranch.crawler.run import signals
from anabranch.crawler.run.signals import handle_signals
from tests.crawler.builder import until

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Called:
    """Signal handlers that record their calls, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def handle_signals(self, **more: bool) -> AbstractContextManager[None]:
        return handle_signals(*(partial(self.names.append, name) for name in ("end", "tell", "reopen")), **more)

    async def by(self, number: int) -> str:
        """Send the signal twice, check that each calls one handler, and return the name of the last one called."""
        for count in (1, 2):
            del self.names[:]
            os.kill(os.getpid(), number)
            await until(lambda: self.names)
            assert len(self.names) == 1, count
        return self.names[0]


@pytest.fixture(autouse=True)
def _as_before():
    """The handlers of the tests' own process are left as they were."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("is_daemon", [True, False])
async def test_what_each_of_them_calls(monkeypatch, *, is_daemon) -> None:
    """SIGHUP says that the terminal has gone; a daemon has none."""
    monkeypatch.setattr(signals, "has_terminal", lambda: not is_daemon)
    called = Called()
    with called.handle_signals():
        calls = [await called.by(number) for number in NUMBERS]
    assert calls == ["end", "end", "reopen" if is_daemon else "end", "tell", "reopen"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
async def test_what_comes_too_late_is_ignored(number) -> None:
    """It would end the process."""
    called = Called()
    with called.handle_signals():
        pass
    os.kill(os.getpid(), number)
    assert called.names == []


@pytest.mark.parametrize(
    ("is_last", "after"), [(False, signal.default_int_handler), (True, signal.SIG_IGN)], ids=["goes on", "ends"]
)
async def test_afterwards_signals_are_as_before_or_ignored_where_nothing_comes_after(is_last, after) -> None:
    """A program that crawls is not the crawl's; a process that only ends has its exit code already."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Called().handle_signals(is_last=is_last):
        assert signal.getsignal(signal.SIGTERM) not in {signal.default_int_handler, signal.SIG_IGN}
    assert signal.getsignal(signal.SIGTERM) is after
    assert signal.getsignal(signal.SIGINT) is after
    assert signal.getsignal(signal.SIGHUP) is (after if is_last else signal.SIG_DFL)


async def test_an_ignored_sighup_stays_ignored() -> None:
    """Whoever wrote `nohup` meant it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Called().handle_signals():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
