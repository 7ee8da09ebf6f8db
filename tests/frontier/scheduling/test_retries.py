"""Rows that wait, by the time they are due."""

from __future__ import annotations

import pytest

from anabranch.frontier.records import OutcomeKind, Row
from anabranch.frontier.scheduling import retries as module
from anabranch.frontier.scheduling.retries import Retries
from tests.frontier.builder import HASTE, START_S, build, pages, row


def waiting(ordinal: int, due_s: float) -> Row:
    return row(ordinal, due_s=due_s)


def ordinals(retries: Retries, now_s: float) -> list[int]:
    return [due.ordinal for due in retries.take_due(now_s)]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has room for four rows; two are read at a time."""
    monkeypatch.setattr(module, "RETRIES", 4)
    monkeypatch.setattr(module, "RETRIES_AT_ONCE", 2)


def test_rows_come_when_they_are_due_and_the_older_url_first() -> None:
    """By time, then by acceptance; what is not due stays."""
    retries = Retries(may_have_any=False)
    for ordinal, due_s in [(4, 9.0), (3, 5.0), (2, 5.0), (1, 20.0)]:
        retries.add(waiting(ordinal, due_s))
    assert retries.next_time() == 5.0
    assert ordinals(retries, 4.999) == []
    assert ordinals(retries, 9.0) == [2, 3, 4]
    assert retries.next_time() == 20.0


def test_no_time_is_named_when_nothing_waits() -> None:
    """None, not a time in the past."""
    assert Retries(may_have_any=False).next_time() is None


def test_a_row_without_a_time_cannot_wait() -> None:
    """It would wait for ever."""
    with pytest.raises(AssertionError, match="has a time"):
        Retries(may_have_any=False).add(row(1))


def test_a_row_that_is_removed_waits_no_more() -> None:
    """Its time passes, and nothing comes."""
    retries = Retries(may_have_any=False)
    retries.add(waiting(1, 5.0))
    retries.add(waiting(2, 6.0))
    retries.remove({1, 99})
    assert retries.next_time() == 6.0
    assert ordinals(retries, 9.0) == [2]


@pytest.mark.usefixtures("few")
def test_rows_of_an_earlier_run_are_read() -> None:
    """From the first one due on, until fewer come than were asked for."""
    retries = Retries(may_have_any=True)
    assert (retries.wants_more, retries.ask()) == (True, None)
    retries.read([waiting(3, 1.0), waiting(1, 2.0)])
    assert ordinals(retries, 1.0) == [3]
    assert (retries.wants_more, retries.ask()) == (True, (2.0, 1))
    retries.read([waiting(2, 3.0)])
    assert not retries.wants_more
    assert ordinals(retries, 9.0) == [1, 2]


@pytest.mark.usefixtures("few")
def test_a_row_that_waits_while_the_others_are_read_is_not_lost() -> None:
    """The answer cannot hold it; it comes when it is due."""
    retries = Retries(may_have_any=True)
    retries.ask()
    retries.add(waiting(7, 5.0))
    retries.read([waiting(3, 1.0)])
    assert ordinals(retries, 9.0) == [3, 7]


@pytest.mark.usefixtures("few")
def test_a_row_that_is_due_behind_what_was_read_is_read_in_its_turn() -> None:
    """Memory does not keep it: the store has it, and gives it with its like."""
    retries = Retries(may_have_any=True)
    retries.ask()
    retries.add(waiting(7, 5.0))
    retries.read([waiting(1, 1.0), waiting(2, 2.0)])
    assert ordinals(retries, 9.0) == [1, 2]
    assert retries.ask() == (2.0, 2)
    retries.read([waiting(7, 5.0)])
    assert ordinals(retries, 9.0) == [7]


@pytest.mark.usefixtures("few")
def test_memory_holds_the_first_of_many() -> None:
    """The others are rows and are read again when few remain; all of them come in order."""
    rows = [waiting(ordinal, float(ordinal)) for ordinal in range(1, 30)]
    retries = Retries(may_have_any=False)
    for number in (*range(20, 29), *range(20)):
        retries.add(rows[number])
    assert len(retries._rows) <= 4 * module.RETRIES
    came = []
    while len(came) < len(rows):
        came += ordinals(retries, 99.0)
        if retries.wants_more:
            after = retries.ask() or (0.0, 0)
            retries.read([some for some in rows if (some.due_s, some.ordinal) > after][:2])
    assert came == list(range(1, 30))


def test_a_retry_leaves_the_head_of_its_queue() -> None:
    """A URL that fails does not block the others: it waits beside them and comes back to its place when it is due."""
    rig = build(politeness=HASTE)
    urls = pages("a.test", 4)
    rig.add(*urls)
    lease = rig.lease_now()
    rig.finish(lease, OutcomeKind.RETRY, after_s=60.0)
    other = rig.lease_now()
    assert other.url == urls[1]
    assert rig.core.operations.statistics().waiting == 1
    rig.clock.advance(60.0)
    assert rig.lease() is None, "it comes due, and its gate is taken"
    rig.finish(other)
    again = rig.lease_now()
    assert (again.url, again.attempts) == (urls[0], 1)


def test_a_queue_whose_urls_all_wait_is_asleep_and_wakes_by_time() -> None:
    """`wake` names the moment; nothing is asked of the store until then."""
    rig = build(politeness=HASTE)
    rig.add("http://a.test/")
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=60.0)
    assert rig.lease() is None
    assert rig.state_of("a.test") == "snoozed"
    assert rig.core.wake().at_s == START_S + 60.0
    rig.clock.advance(60.0)
    assert rig.lease_now().attempts == 1
