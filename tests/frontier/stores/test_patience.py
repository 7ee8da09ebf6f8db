"""How long what failed is tried again, without a clock that runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from anabranch.frontier.stores.patience import Patience


class FakeTime:
    """A clock, and a condition whose waits only move it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waits: list[float] = []

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        if predicate():
            self.waits.append(0.0)
            return True
        self.waits.append(round(timeout, 6))
        self.now_s += timeout
        return False

    def patience(self, retry_s: float) -> Patience:
        made = Patience(retry_s, clock=lambda: self.now_s)
        made._changed.wait_for = self.wait_for  # type: ignore[assignment]
        return made


@pytest.fixture
def fake() -> FakeTime:
    return FakeTime()


def tries(patience: Patience) -> int:
    """How often it waits before it gives up."""
    count = 0
    while patience.wait():
        count += 1
    return count


def test_waits_double_up_to_the_longest_and_end_with_the_time(fake: FakeTime) -> None:
    """The last one is cut, so that the last try comes when the time ends."""
    tries(fake.patience(30.0))
    assert fake.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0, 3.7]
    assert fake.now_s == pytest.approx(1030.0)


def test_no_time_means_no_second_try(fake: FakeTime) -> None:
    """Nothing is waited for."""
    assert tries(fake.patience(0.0)) == 0
    assert fake.waits == []


def test_after_a_success_all_the_time_is_there_again(fake: FakeTime) -> None:
    """Failures of an hour ago do not count."""
    patience = fake.patience(0.3)
    assert tries(patience) == 2
    patience.renew()
    assert tries(patience) == 2


def test_who_is_hurried_tries_at_once_and_ends_no_later(fake: FakeTime) -> None:
    """One wait is cut, the next are short again; the time is not longer for it."""
    patience = fake.patience(1.0)
    patience.wait()
    patience.wait()
    patience.hurry()
    tries(patience)
    assert fake.waits == [0.1, 0.2, 0.0, 0.1, 0.2, 0.4]
    assert fake.now_s == pytest.approx(1001.0)


def test_another_thread_can_hurry_a_wait() -> None:
    """It waits on a condition, not for a time."""
    patience = Patience(3600.0)
    for _ in range(15):  # without a hurry these waits take a minute
        patience.hurry()
        patience.wait()
    waiter = threading.Thread(target=patience.wait)
    waiter.start()
    patience.hurry()
    waiter.join(timeout=30)
    assert not waiter.is_alive()
