"""Rows that wait for their retry, by due time: the next ones in memory, the rest in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.frontier.records import Row
from anabranch.frontier.scheduling.readylist import RETRIES_AT_ONCE, Prefix

#: Waiting rows in memory.
RETRIES = 10_000


class Retries:
    """Waiting rows by (due, ordinal). Every operation costs O(log of those in memory)."""

    def __init__(self, *, may_have_any: bool) -> None:
        """`may_have_any`: the store may hold waiting rows already."""
        self._places: Prefix[tuple[float, int]] = Prefix(RETRIES, is_complete=not may_have_any)
        self._rows: dict[int, Row] = {}
        self._is_stale = False  #: rows that came to the store otherwise may be before those that were read

    def add(self, row: Row) -> None:
        """Let the row wait until it is due."""
        self._places.offer(_place(row), row.ordinal)
        if row.ordinal in self._places or self._places.is_asked:
            self._rows[row.ordinal] = row
        if len(self._rows) > 2 * len(self._places) + RETRIES and not self._places.is_asked:  # the prefix was cut
            self._rows = {ordinal: row for ordinal, row in self._rows.items() if ordinal in self._places}

    def remove(self, ordinals: set[int]) -> None:
        """Remove these rows."""
        for ordinal in ordinals:
            self._places.discard(ordinal)
            self._rows.pop(ordinal, None)

    def of(self, asked: Callable[[Row], bool]) -> set[int]:
        """The ordinals of the rows in memory for which this is true."""
        return {ordinal for ordinal, row in self._rows.items() if asked(row)}

    def read_again(self) -> None:
        """Read from the first row on: the store has got rows that were not added here."""
        if self._places.is_asked:
            self._is_stale = True
        else:
            self._places.rewind()

    def take_due(self, now_s: float) -> Iterator[Row]:
        """Take every row in memory that is due."""
        while (first := self._places.first()) is not None and first[0][0] <= now_s:
            self._places.pop()
            yield self._rows.pop(first[1])

    def next_time(self) -> float | None:
        """When the next row in memory is due; None if none waits."""
        first = self._places.first()
        return None if first is None else first[0][0]

    @property
    def wants_more(self) -> bool:
        """Whether to ask the store for more."""
        return self._places.wants_more

    def ask(self) -> tuple[float, int] | None:
        """Note that the store is asked; returns the place behind which to read."""
        return self._places.ask()

    def read(self, rows: list[Row]) -> None:
        """Take the store's answer."""
        known = set(self._rows)
        is_stale, self._is_stale = self._is_stale, False
        self._places.answer([(_place(row), row.ordinal) for row in rows], RETRIES_AT_ONCE)
        self._rows.update((row.ordinal, row) for row in rows if row.ordinal not in known)
        self._rows = {ordinal: row for ordinal, row in self._rows.items() if ordinal in self._places}
        if is_stale:
            self._places.rewind()


def _place(row: Row) -> tuple[float, int]:
    assert row.due_s is not None, "a row that waits has a time"
    return row.due_s, row.ordinal
