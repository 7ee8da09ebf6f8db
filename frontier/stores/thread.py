"""The FIFO before the one thread that touches the tables, and what stands in it.

The core appends and never waits. The thread takes all that waits, up to a bound, and works it off in order as one
transaction (`work`). Before it begins one it lingers, so that a hundred pages share a commit and its sync, unless it is
hurried: by somebody who waits for an answer, or by the core when nothing can be leased or much is not durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Lock
from typing import Any, NamedTuple

from sqlalchemy import Connection

from anabranch.frontier.stores.messages import Answer, Batch

#: Rows of one transaction, unless a single batch has more.
MAX_ROWS = 10_000
#: How long more is gathered for a transaction that nobody waits for.
LINGER_S = 0.05


class Asked(NamedTuple):
    """A question of the core, answered among the answers as soon as it is read."""

    read: Callable[..., Answer]  #: called with the connection and the arguments
    arguments: tuple[object, ...]
    takes: bool = False  #: it writes too: gates are held from now on


@dataclass(frozen=True, slots=True)
class Question:
    """A question of somebody who waits for the answer; he gets it after the commit. It may be asked more than once."""

    ask: Callable[[Connection], Any]
    answer: Future[Any] = field(default_factory=Future)


Item = Batch | Asked | Question


class Fifo:
    """What was said to the store and is not worked off yet. Any thread may append; one takes."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._items: deque[Item] = deque()
        self._lock = Lock()
        self._changed = Condition(self._lock)
        #: The taker sleeps: only then a notice, which costs more than all else here, is of use.
        self._is_awaited = False
        self._is_hurried = False  #: what waits is wanted now
        self._is_closed = False

    def append(self, item: Item) -> bool:
        """Put it at the end; False if nobody will take it any more."""
        with self._lock:
            if self._is_closed:
                return False
            self._items.append(item)
            if isinstance(item, Question):
                self._is_hurried = True
            if self._is_awaited or isinstance(item, Question):
                self._is_awaited = False
                self._changed.notify()
        return True

    def hurry(self) -> None:
        """Hand out what waits at once. O(1), any thread."""
        if self._is_hurried:
            return
        with self._lock:
            if self._items:
                self._is_hurried = True
                self._changed.notify()

    def close(self) -> None:
        """Take nothing more; what waits is still handed out."""
        with self._lock:
            self._is_closed = True
            self._changed.notify()

    def groups(self) -> Iterator[list[Item]]:
        """Hand out all that waits, a transaction's worth at a time; wait and linger for more; end when closed and empty."""
        while True:
            with self._lock:
                while not self._items and not self._is_closed:
                    self._is_awaited = True
                    self._changed.wait()
                self._is_awaited = False
                self._changed.wait_for(self._is_wanted, self._linger_s)
                group = self._take()
                self._is_hurried = self._is_hurried and bool(self._items)
            if not group:
                return
            yield group

    def _is_wanted(self) -> bool:
        return self._is_hurried or self._is_closed

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
