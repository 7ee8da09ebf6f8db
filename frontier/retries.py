"""Rows that wait for their retry, by the time they are due."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from frontier.models import Head
from frontier.workqueues import Lane


class Retry(NamedTuple):
    """A row that waits until `due_s`."""

    due_s: float
    ordinal: int  #: breaks ties: the URL that was accepted first is first
    lane: Lane
    head: Head


class Retries:
    """A heap of waiting rows. Every operation costs O(log waiting)."""

    def __init__(self) -> None:
        self._heap: list[Retry] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Retry]:
        return iter(self._heap)

    def add(self, lane: Lane, head: Head) -> None:
        """The head waits until its row is due."""
        assert head.row.due_s is not None, "a row that waits has a time"
        heappush(self._heap, Retry(head.row.due_s, head.row.ordinal, lane, head))

    def take_due(self, now_s: float) -> Iterator[tuple[Lane, Head]]:
        """Take every row that is due."""
        while self._heap and self._heap[0].due_s <= now_s:
            retry = heappop(self._heap)
            yield retry.lane, retry.head

    def next_time(self) -> float | None:
        """When the next row is due; None if none waits."""
        return self._heap[0].due_s if self._heap else None
