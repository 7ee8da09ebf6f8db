"""The one thread that touches the tables, and the FIFO before it.

The core appends and never waits. The thread takes all that waits, up to a bound, and works it off in order as one
transaction: so it commits whenever it is idle and something waits, and a transaction grows with the load. A read is done at
its place in the order and answered at once; `Synced` comes after the commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from threading import Condition
from typing import Any

from sqlalchemy import Connection

from frontier.errors import FrontierError, StoreUnavailable
from frontier.stores.base import Answer, Batch, Counters, HeadsRead, LaneId, StoreFailed, Synced
from frontier.stores.reading import read_heads
from frontier.stores.writing import Writing

#: Rows of one transaction, unless a single batch has more.
MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class HeadsAsked:
    """A question of the core; its answer is a `HeadsRead`."""

    lane: LaneId
    limit: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question of somebody who waits for the answer; he gets it after the commit."""

    ask: Callable[[Connection], Any]
    answer: Future[Any] = field(default_factory=Future)


Item = Batch | HeadsAsked | Question


class Fifo:
    """What was said to the store and is not worked off yet. Any thread may append; one takes."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._changed = Condition()
        self._is_closed = False

    def append(self, item: Item) -> bool:
        """Put it at the end; False if nobody will take it any more."""
        with self._changed:
            if not self._is_closed:
                self._items.append(item)
                self._changed.notify()
            return not self._is_closed

    def close(self) -> None:
        """Take nothing more; what waits is still handed out."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def groups(self) -> Iterator[list[Item]]:
        """Hand out all that waits, a transaction's worth at a time; wait for more; end when closed and empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_closed)
                group = self._take()
            if not group:
                return
            yield group

    def _take(self) -> list[Item]:
        group: list[Item] = []
        rows = 0
        while self._items:
            item = self._items[0]
            rows += item.rows if isinstance(item, Batch) else 0
            if group and rows > MAX_ROWS:
                break
            group.append(self._items.popleft())
        return group


class Work:
    """What the thread does with each group; everything here runs in that thread."""

    def __init__(
        self,
        connection: Connection,
        totals: Counters,
        post: Callable[[list[Answer]], None],
        translate: Callable[[Exception], FrontierError],
    ) -> None:
        self._connection = connection
        self._totals = totals
        self._post = post
        self._translate = translate
        self.failure: StoreUnavailable | None = None  #: why nothing more is written

    def do(self, group: list[Item]) -> None:
        """Work off one group. After a failure nothing is written any more, and whoever waits is told."""
        if self.failure is not None:
            refuse(group, self.failure)
            return
        try:
            self._transact(group)
        except Exception as error:  # noqa: BLE001  whatever it is, the core must hear of it: a dead thread says nothing
            self._fail(group, self._translate(error))

    def _fail(self, group: list[Item], error: FrontierError) -> None:
        if not isinstance(error, StoreUnavailable):
            cause, error = error, StoreUnavailable(str(error))
            error.__cause__ = cause
        self.failure = error
        refuse(group, error)
        self._post([StoreFailed(error)])

    def _transact(self, group: list[Item]) -> None:
        writing = Writing(self._connection, self._totals)
        with self._connection.begin():
            tell = self._work_off(group, writing)
            writing.flush()
        self._totals = writing.totals
        if writing.number is not None:
            self._post([Synced(writing.number, writing.duplicates)])
        for told in tell:
            told()

    def _work_off(self, group: list[Item], writing: Writing) -> list[Callable[[], None]]:
        """Do everything in order; answers of neighbouring reads are posted together. The result answers the questions."""
        tell: list[Callable[[], None]] = []
        for asks_heads, items in groupby(group, key=lambda item: isinstance(item, HeadsAsked)):
            heads: list[Answer] = []
            for item in items:
                match item:
                    case Batch():
                        writing.add(item)
                    case HeadsAsked(lane, limit):
                        writing.flush_rows()
                        heads.append(HeadsRead(lane, read_heads(self._connection, lane, limit)))
                    case Question():
                        writing.flush()
                        tell.append(self._ask(item))
            if asks_heads:
                self._post(heads)
        return tell

    def _ask(self, question: Question) -> Callable[[], None]:
        """Find the answer; the result hands it over."""
        try:
            return partial(question.answer.set_result, question.ask(self._connection))
        except FrontierError as error:  # an answer too: the recount found a difference
            return partial(question.answer.set_exception, error)


def refuse(group: list[Item], error: FrontierError) -> None:
    """Tell those who wait for an answer that there will be none."""
    for item in group:
        if isinstance(item, Question) and not item.answer.done():
            item.answer.set_exception(error)
