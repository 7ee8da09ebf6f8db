"""The signals of a running crawl."""

import os
import signal

import pytest

from crawler.operating.signals import heeded
from tests.crawler.builder import until


@pytest.fixture(autouse=True)
def _as_before():
    """The handlers of the tests' own process are left as they were."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_each_of_them_asks_for_the_end(number) -> None:
    """As often as it comes."""
    ends = []
    with heeded(lambda: ends.append(1), lambda: None):
        for count in (1, 2):
            os.kill(os.getpid(), number)
            await until(lambda count=count: len(ends) == count)


async def test_sigusr1_asks_how_it_goes() -> None:
    """And one that comes after the end is ignored: it would end the process."""
    told, ends = [], []
    with heeded(lambda: ends.append(1), lambda: told.append(1)):
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(lambda: told)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (told, ends) == ([1], [])


@pytest.mark.parametrize(
    ("is_last", "after"), [(False, signal.default_int_handler), (True, signal.SIG_IGN)], ids=["goes on", "ends"]
)
async def test_afterwards_sigterm_is_as_before_or_ignored_where_nothing_comes_after(is_last, after) -> None:
    """A program that crawls is not the crawl's; a process that only ends has its exit code already."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with heeded(lambda: None, lambda: None, is_last=is_last):
        assert signal.getsignal(signal.SIGTERM) not in {signal.default_int_handler, signal.SIG_IGN}
    assert signal.getsignal(signal.SIGTERM) is after


async def test_an_ignored_sighup_stays_ignored() -> None:
    """Whoever wrote `nohup` meant it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with heeded(lambda: None, lambda: None):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
