"""What wakes the loop: a bell that any thread rings, and one timer."""

import asyncio
import threading

import pytest

from anabranch.frontier.bell import Alarm, Bell


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_bell_that_is_rung_often_is_heard_once() -> None:
    """The store's thread may answer many times before the loop has its turn."""
    heard: list[int] = []
    bell = Bell(asyncio.get_running_loop(), lambda: heard.append(1))
    for _ in range(100):
        bell.ring()
    await settle()
    assert heard == [1]
    bell.ring()
    await settle()
    assert heard == [1, 1]


async def test_what_was_said_before_a_ring_is_seen_by_who_hears_it() -> None:
    """Also if the bell was rung while an earlier ring was being heard: no answer is left lying."""
    said: list[int] = []
    seen: list[int] = []
    has_all = asyncio.Event()

    def hear() -> None:
        seen.extend(said[len(seen) :])
        if len(seen) == 5000:
            has_all.set()

    bell = Bell(asyncio.get_running_loop(), hear)

    def say() -> None:
        for number in range(5000):
            said.append(number)
            bell.ring()

    thread = threading.Thread(target=say)
    thread.start()
    await asyncio.wait_for(has_all.wait(), 10)
    thread.join()


def test_a_bell_rung_after_the_loop_has_ended_is_not_heard() -> None:
    """Nobody waits any more: no error in the store's thread."""
    ended = asyncio.new_event_loop()
    ended.close()
    Bell(ended, lambda: pytest.fail("heard")).ring()


async def test_an_alarm_moves_to_an_earlier_moment_only() -> None:
    """A moment that becomes later costs nothing: who hears the early ring sets it again."""
    rings: list[int] = []
    loop = asyncio.get_running_loop()
    alarm = Alarm(loop, lambda: rings.append(1), lambda: 100.0)
    alarm.set(160.0)
    first = alarm._timer
    assert first is not None
    assert first.when() - loop.time() == pytest.approx(60.0, abs=1.0)
    alarm.set(200.0)
    assert alarm._timer is first
    alarm.set(110.0)
    assert first.cancelled()
    assert alarm._timer is not None
    assert alarm._timer.when() - loop.time() == pytest.approx(10.0, abs=1.0)
    alarm.stop()
    assert not alarm.is_set


async def test_an_alarm_for_a_moment_that_is_over_rings_at_once() -> None:
    """And can be set again by who hears it."""
    rung = asyncio.Event()
    alarm = Alarm(asyncio.get_running_loop(), rung.set, lambda: 100.0)
    alarm.set(40.0)
    await asyncio.wait_for(rung.wait(), 10)
    assert not alarm.is_set
