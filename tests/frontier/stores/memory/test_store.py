"""Rules of the store in memory alone; those that it shares with the others are in the contract."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.stores.contract import Counters, HeadsRead, Moved, Standing, Synced
from anabranch.frontier.stores.memory.store import MemoryStore, check_lanes
from tests.frontier.stores.rows import (
    A_LANE,
    IDENTITY,
    NOW_S,
    OTHER_LANE,
    Teller,
    done,
    lane,
    row,
    served_again,
    waiting,
)


@pytest.fixture
def teller() -> Teller:
    store = MemoryStore()
    store.open(IDENTITY, NOW_S, lambda: pytest.fail("nobody waits, so nobody is woken"))
    return Teller(store)


def test_it_answers_inside_the_call(teller: Teller) -> None:
    """Nobody need wait: the core's tests have no thread and no time in them."""
    teller.say([row(1)])
    assert teller.store.take_answers() == [Synced(1, [], 0, 0, 1, 0)]
    teller.store.ask_heads(A_LANE, 16, with_queue=False)
    (answer,) = teller.store.take_answers()
    assert isinstance(answer, HeadsRead)
    assert [head.row for head in answer.heads] == [row(1)]


def test_it_has_no_past(teller: Teller) -> None:
    """Any identity is right for a new one, and what one store held the next does not know."""
    teller.say([row(1)])
    teller.store.close(clean=True)
    opening = MemoryStore().open({"policy": "another"}, NOW_S, lambda: None)
    assert (opening.clean, opening.counters) == (True, Counters())


def test_answers_of_an_owner_that_is_gone_are_not_told_to_the_next(teller: Teller) -> None:
    """They were asked for by a core that no longer lives."""
    teller.say([row(1)])
    teller.store.close(clean=False)
    teller.store.open(IDENTITY, NOW_S, lambda: None)
    assert teller.store.take_answers() == []


@pytest.mark.parametrize("wrong", ["it is not there", "it is at another place", "its lane is unknown"])
def test_a_row_that_is_not_where_it_is_said_to_be_is_refused(teller: Teller, wrong: str) -> None:
    """A defect of the core must not become a wrong count."""
    teller.say([row(1)])
    said = {
        "it is not there": row(2),
        "it is at another place": waiting(row(1), NOW_S),
        "its lane is unknown": row(1, lane=OTHER_LANE),
    }
    with pytest.raises(InvariantBroken, match="batch 2"):
        teller.say(ended=[done(said[wrong])])


def test_a_row_in_a_lane_that_nobody_announced_is_refused(teller: Teller) -> None:
    """Its turn would be unknown, so it would never be served."""
    teller.announced.add(A_LANE)
    with pytest.raises(InvariantBroken, match="batch 1"):
        teller.say([row(1)])


def test_a_lane_that_is_removed_leaves_nothing(teller: Teller) -> None:
    """Idle lanes cost no memory."""
    teller.say([row(1)])
    teller.say(ended=[done(row(1))], removed=[A_LANE])
    lanes = teller.store._lanes
    assert [len(kept) for kept in (lanes._by_queue, lanes._lines)] == [0, 0]


def test_the_recount_notices_what_does_not_add_up(teller: Teller) -> None:
    """Each thing that is kept beside the rows."""
    lanes = teller.store._lanes
    teller.say([row(1), row(2), row(3)], standings=[(OTHER_LANE[0], Standing.PAUSED)])
    held = lanes.lane(A_LANE)
    held.ready += 1
    with pytest.raises(InvariantBroken, match="holds 3 rows"):
        teller.store.counters()
    held.ready -= 1
    lanes.rows_stopped[Standing.PAUSED] += 1
    with pytest.raises(InvariantBroken, match="PAUSED"):
        teller.store.counters()
    lanes.rows_stopped[Standing.PAUSED] -= 1
    lanes._leave_line(held)
    with pytest.raises(InvariantBroken, match="in line"):
        teller.store.counters()
    lanes._join_line(held)
    next(iter(held.levels.values())).move_to_end(1)
    with pytest.raises(InvariantBroken, match="out of order"):
        teller.store.counters()


def test_a_thousand_rows_that_come_back_cost_no_search_each(teller: Teller) -> None:
    """Whatever the order in which they come, they are served by ordinal, with those that never left between them."""
    rows = [row(ordinal) for ordinal in range(1, 2001)]
    teller.say(rows)
    away = [waiting(old, NOW_S) for old in rows[::2]]
    teller.say(moved=[Moved(old, new) for old, new in zip(rows[::2], away, strict=True)])
    back = sorted(away, key=lambda old: old.ordinal * 7919 % 2003)
    for late in back[:700]:
        teller.say(moved=[Moved(late, served_again(late))])
    expected = sorted([old.ordinal for old in rows[1::2]] + [late.ordinal for late in back[:700]])
    assert teller.heads(limit=5000) == expected
    check_lanes(teller.store._lanes)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns within a few bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_questions_of_other_threads_do_not_disturb_the_core(teller: Teller) -> None:
    """A report is read while the crawl goes on; what fails in a thread fails the test."""
    lanes = [lane(f"queue {number % 20}", f"gate {number % 3}") for number in range(2100)]
    rows = [row(number + 1, lane=found) for number, found in enumerate(lanes)]
    teller.say(rows[:100])
    told, stop = teller.store, threading.Event()

    def ask() -> None:
        while not stop.is_set():
            assert sum(map(len, told.keys(10))) >= 100
            assert told.queues(None, None, 9)
            assert told.queues(None, None, 9, longest_first=True)
            assert told.queued(None, 50)
            assert told.tally()
            told.ended_after(0, 50)
            told.look_up(b"http://a.test/1500")

    asking = threading.Thread(target=ask)
    asking.start()
    for number in range(100, 2100):
        teller.say([rows[number]], ended=[done(rows[number - 100])])
        teller.answers()
    stop.set()
    asking.join()
    assert told.counters().queued == 100
