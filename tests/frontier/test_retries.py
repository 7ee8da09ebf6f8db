"""Rows that wait, by the time they are due."""

import pytest

from frontier.models import QueueKey
from frontier.retries import Retries
from frontier.workqueues import Lane, WorkQueue
from tests.frontier.builder import head

LANE = Lane(WorkQueue(1, QueueKey("q")), 2, 1)


def test_rows_come_when_they_are_due_and_the_older_url_first() -> None:
    """By time, then by acceptance; what is not due stays."""
    retries = Retries()
    for ordinal, due_s in [(4, 9.0), (3, 5.0), (2, 5.0), (1, 20.0)]:
        retries.add(LANE, head(ordinal, due_s=due_s))
    assert retries.next_time() == 5.0
    assert list(retries.take_due(4.999)) == []
    assert [(lane, item.row.ordinal) for lane, item in retries.take_due(9.0)] == [(LANE, 2), (LANE, 3), (LANE, 4)]
    assert [(retry.ordinal, retry.due_s) for retry in retries] == [(1, 20.0)]
    assert len(retries) == 1


def test_no_time_is_named_when_nothing_waits() -> None:
    """None, not a time in the past."""
    assert Retries().next_time() is None


def test_a_row_without_a_time_cannot_wait() -> None:
    """It would wait for ever."""
    with pytest.raises(AssertionError, match="has a time"):
        Retries().add(LANE, head(1))
