"""The store thread's work: each group of items is one transaction, tried again until it is kept or hope is lost.

`store` hands out the groups; `writing` adds the batches up, `reading` answers the questions.

A read is done at its place in the order and its answer posted at once; `Synced` comes after the commit. So when a
transaction fails, some of its reads have been answered. That is safe: nothing was kept, no other process writes (lock and
epoch), and the group is kept whole. So the next try finds the same rows, and every read, also one that takes gates, comes
to the same answer; it is done again for what it writes, but posted only if it was not posted before. If no try goes well,
the core learns that the store failed, and none of its changes based on such an answer became durable.

Whether a COMMIT that failed took place all the same is asked of the database: each transaction that writes leaves its mark.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from threading import Condition
from typing import Any, Protocol

from sqlalchemy import Connection

from anabranch.frontier.errors import FrontierError, StoreFull, StoreUnavailable, caused_by
from anabranch.frontier.records import Row
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import Answer, Batch, Counters, Opening, StoreFailed, Synced, Troubled
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.lanes import KnownLanes
from anabranch.frontier.stores.sql.reading import Asked, Item, Question, read_all
from anabranch.frontier.stores.sql.statements import fetch, write
from anabranch.frontier.stores.sql.writing import TransactionWriter, check_epoch

#: Seconds before the second try; each later wait is twice as long, up to the longest.
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0


class Patience:
    """Waits between tries, for so many seconds from the first failure on. One thread waits; any may hurry it."""

    def __init__(self, retry_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`retry_s` 0: what failed is not tried again."""
        self.retry_s = retry_s  #: from the first failure on
        self._clock = clock
        self._changed = Condition()
        self._is_hurried = False
        self._ends_s: float | None = None  #: by the clock; None = nothing has failed
        self._wait_s = FIRST_WAIT_S

    def renew(self) -> None:
        """It went well: the next failure has all the time again."""
        self._ends_s = None
        self._wait_s = FIRST_WAIT_S

    def wait(self) -> bool:
        """Wait until it is to be tried again; False, at once, if the time is up. The last try is when the time ends."""
        now_s = self._clock()
        if self._ends_s is None:
            self._ends_s = now_s + self.retry_s
        left_s = self._ends_s - now_s
        if left_s <= 0:
            return False
        with self._changed:
            is_hurried = self._changed.wait_for(lambda: self._is_hurried, min(self._wait_s, left_s))
            self._is_hurried = False
        self._wait_s = FIRST_WAIT_S if is_hurried else min(2 * self._wait_s, LONGEST_WAIT_S)
        return True

    def hurry(self) -> None:
        """End the present wait, or the next one, and begin with short ones again: somebody waits for the end."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify()


#: What the filter's disk says when it is full or read-only.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


class FilterFailed(StoreUnavailable):
    """The filter could not be asked or marked; it may be able to later."""


class FilterFull(FilterFailed, StoreFull):
    """Its disk is full or read-only."""


def known_rows(batches: Sequence[Batch], seen: SeenFilter) -> list[Row]:
    """The new rows that the filter knows, by one question for all batches; forced ones are not asked about.

    Raises: FilterFailed.
    """
    asked = [row for batch in batches for row in batch.new if row.ordinal not in batch.forced]
    if not asked:
        return []
    with _failures():
        verdicts = seen.unseen([row.dedup_key() for row in asked])
    return [row for row, is_unseen in zip(asked, verdicts, strict=True) if not is_unseen]


def mark(keys: Sequence[bytes], seen: SeenFilter) -> None:
    """Tell the filter what is committed. Raises: FilterFailed."""
    with _failures():
        seen.mark(keys)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (OSError, StoreUnavailable) as error:
        is_full = isinstance(error, OSError) and error.errno in _FULL
        kind: type[FilterFailed] = FilterFull if is_full or isinstance(error, StoreFull) else FilterFailed
        raise kind(f"the filter cannot be used: {error}") from error


_MARK = "transaction"  # name in `crawl`: the last one that wrote, "epoch.number"


class Database(Protocol):
    """One database that holds one crawl. All but `place` belongs to the store thread."""

    @property
    def place(self) -> str:
        """What errors call it; no password is in it."""

    def connected(self) -> AbstractContextManager[Connection]:
        """The one connection, with the lock that keeps others out until it ends. Raises: what `translated` understands."""

    def is_lost(self, connection: Connection) -> bool:
        """The connection is of no more use, and the lock is gone with it."""

    def announce(self, connection: Connection, owner: str) -> None:
        """Leave the owner's line where whoever is refused finds it."""

    def let_go(self, connection: Connection, *, clean: bool) -> None:
        """Tidy up at the end: outside of a transaction, nothing is written after it."""

    def translated(self, error: Exception) -> FrontierError:
        """The error of this room for a database's error; one line that names the place and what to do."""

    def is_passing(self, error: Exception) -> bool:
        """It may go by itself (a full disk, a server that is gone), so that the transaction is worth another try."""


class Session:
    """The connection to the database; another one when it was lost."""

    def __init__(self, database: Database) -> None:
        """Connect. Raises: what `Database.translated` understands."""
        self.database = database
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(database.connected())

    def recover(self, epoch: int) -> None:
        """After a failure: end what is left of the transaction; connect again if the connection is lost.

        Raises: StoreInUse if the store had another owner meanwhile, and what `Database.translated` understands.
        """
        if not self.database.is_lost(self.connection):
            self.connection.connection.rollback()  # a COMMIT that fails may leave its transaction open
            return
        self.close()
        self.connection = self._stack.enter_context(self.database.connected())
        with self.connection.begin():
            check_epoch(self.connection, epoch)

    def close(self) -> None:
        """Let go of the connection and its lock."""
        self._stack.close()


@dataclass(slots=True)
class Transaction:
    """Items that are kept together, and what is known of them after a try that failed."""

    items: list[Item]
    batches: list[Batch] | None = None  #: without what the filter knows; None = it was not asked yet
    known: list[Row] = field(default_factory=list)  #: new rows that the filter knows
    posted: int = 0  #: reads that were answered, counted in their order
    mark: str | None = None  #: the mark of its transaction; None: it writes nothing that may not be written twice
    has_failed: bool = False
    worked: Worked | None = None  #: what the last try came to, if it came to its COMMIT

    def failed(self) -> None:
        """A try failed."""
        self.has_failed = True

    def worked_off(self, worked: Worked | None) -> None:
        """A try came to its COMMIT; None: another one begins."""
        self.worked = worked

    def asked_filter(self, batches: list[Batch], known: list[Row]) -> None:
        """The filter that blocks has answered: these batches are left, and it knows these rows."""
        self.batches, self.known = batches, known

    def posted_up_to(self, count: int) -> None:
        """So many reads were answered."""
        self.posted = count

    def mark_as(self, mark: str) -> None:
        """Its transaction holds this mark."""
        self.mark = mark


@dataclass(frozen=True, slots=True)
class Worked:
    """A transaction that needs only its COMMIT."""

    writing: TransactionWriter
    tell: list[Callable[[], None]]  #: answer the questions


class Work:
    """Works off groups, in the store thread."""

    def __init__(
        self,
        session: Session,
        opening: Opening,
        seen: SeenFilter | None,
        post: Callable[[list[Answer]], None],
        patience: Patience,
    ) -> None:
        self._session = session
        self._totals: Counters = opening.counters
        self._epoch = opening.epoch
        self._seen = seen
        self._post = post
        self._patience = patience
        self._lanes = KnownLanes()
        self._marks = 0
        self._trouble = ""  #: the failure that was last reported to the core
        self.failure: StoreUnavailable | None = None  #: why nothing more is written

    def do(self, items: list[Item]) -> None:
        """Work off one group. After a failure nothing more is written, and waiting callers get the error."""
        if self.failure is not None:
            refuse(items, self.failure)
            return
        group = Transaction(items)
        while not self._try(group):
            pass

    def _try(self, group: Transaction) -> bool:
        """One try; False: there must be another one, and it is time for it."""
        try:
            if group.has_failed:
                self._session.recover(self._epoch)
            self._transact(group)
        except Exception as error:  # noqa: BLE001  whatever it is, the core must hear of it: a dead thread says nothing
            group.failed()
            self._lanes.forget()
            if self._is_passing(error):
                self._tell_trouble(self._trouble_words(error))
                if self._patience.wait():
                    return False
            self._fail(group.items, self._session.database.translated(error))
        else:
            self._patience.renew()
        return True

    def _transact(self, group: Transaction) -> None:
        """To the COMMIT, unless an earlier one took place; then the filter's marks, then the answers."""
        if group.worked is None or not self._is_kept(group):
            self._write(group)
        worked = group.worked
        assert worked is not None
        self._mark_seen(group)
        self._totals = worked.writing.totals
        self._tell_trouble("")
        if worked.writing.number is not None:
            self._post([self._synced(group, worked.writing)])
        for told in worked.tell:
            told()

    def _write(self, group: Transaction) -> None:
        connection = self._session.connection
        group.worked_off(None)
        self._ask_filter(group)
        writing = TransactionWriter(connection, self._totals, self._epoch, self._lanes)
        with connection.begin():
            tell = self._work_off(group, writing)
            writing.flush()
            self._leave_mark(group)
            group.worked_off(Worked(writing, tell))

    def _work_off(self, group: Transaction, writing: TransactionWriter) -> list[Callable[[], None]]:
        """Write all batches, then read: so rows reach the tables in few large statements. The result answers the questions.

        A read may so see what was said after it. That is safe: rows that were leased or in memory when it was asked are left
        out by whoever asked, rows that came later he knows of, and what a later batch took away he cannot want.
        """
        for batch in group.batches or ():
            writing.add(batch)
        writing.flush()
        tell: list[Callable[[], None]] = []
        answers: list[Answer] = []
        for kind, items in groupby((item for item in group.items if not isinstance(item, Batch)), key=_kind):
            if kind is Question:
                tell += [self._ask(item) for item in items if isinstance(item, Question)]
            else:
                asked = [item.arguments for item in items if isinstance(item, Asked)]
                answers += read_all(self._session.connection, kind, asked)
        fresh = answers[group.posted :]
        if fresh:
            group.posted_up_to(len(answers))
            self._post(fresh)
        return tell

    def _ask(self, question: Question) -> Callable[[], None]:
        """Find the answer; the result hands it over."""
        try:
            return partial(question.answer.set_result, question.ask(self._session.connection))
        except StoreUnavailable:
            raise
        except FrontierError as error:  # an answer too: the recount found a difference
            return partial(question.answer.set_exception, error)

    # What makes a second try safe

    def _leave_mark(self, group: Transaction) -> None:
        """Number the transaction in itself. The epoch is part of the mark: numbers begin anew with each owner."""
        if not any(isinstance(item, Batch) or (isinstance(item, Asked) and item.takes) for item in group.items):
            return
        self._marks += 1
        mark = f"{self._epoch}.{self._marks}"
        group.mark_as(mark)
        write(self._session.connection, statements.PUT_FACTS, [(_MARK, mark)])

    def _is_kept(self, group: Transaction) -> bool:
        """The last try's COMMIT failed, or was not heard of, and took place all the same."""
        if group.mark is None:
            return False
        with self._session.connection.begin():
            return fetch(self._session.connection, statements.FACT, (_MARK,)) == [(group.mark,)]

    # The filter that blocks

    def _ask_filter(self, group: Transaction) -> None:
        """Once for all tries: a filter that others mark too may answer otherwise later."""
        if group.batches is not None:
            return
        batches = [item for item in group.items if isinstance(item, Batch)]
        known = [] if self._seen is None else known_rows(batches, self._seen)
        dead = {row.ordinal for row in known}
        for batch in batches if dead else ():
            batch.new[:] = [row for row in batch.new if row.ordinal not in dead]
        group.asked_filter(batches, known)

    def _mark_seen(self, group: Transaction) -> None:
        """Mark what is committed. Duplicates too: the store has their keys, so the filter may know them."""
        if self._seen is None:
            return
        keys = [row.dedup_key() for batch in group.batches or () for row in batch.new]
        if keys:
            mark(keys, self._seen)

    def _synced(self, group: Transaction, writing: TransactionWriter) -> Synced:
        totals = writing.totals
        assert writing.number is not None
        duplicates = [*group.known, *writing.duplicates]
        return Synced(writing.number, duplicates, totals.retired, totals.paused, totals.queues)

    # Errors

    def _is_passing(self, error: Exception) -> bool:
        return isinstance(error, FilterFailed) or self._session.database.is_passing(error)

    def _trouble_words(self, error: Exception) -> str:
        """Which of the two fails, and how."""
        if isinstance(error, FilterFailed):
            return f"the filter: {error.__cause__}"
        return f"the store: {self._session.database.translated(error)}"

    def _tell_trouble(self, words: str) -> None:
        """Tell the core, unless it knows."""
        if words != self._trouble:
            self._trouble = words
            self._post([Troubled(words, self._patience.retry_s)])

    def _fail(self, items: list[Item], error: FrontierError) -> None:
        """Nothing is written from now on. Whatever it was, it makes the store unavailable; the line names what failed."""
        kind = type(error) if isinstance(error, StoreUnavailable) else StoreUnavailable
        place = self._session.database.place
        is_named = isinstance(error, FilterFailed) or str(error).startswith(place)
        self.failure = failure = caused_by(kind(str(error) if is_named else f"{place}: {error}"), error)
        refuse(items, failure)
        self._post([StoreFailed(failure)])


def _kind(item: Item) -> Callable[..., Any]:
    """Neighbours of one kind are worked off together: reads by what they read, the others by their type."""
    return item.read if isinstance(item, Asked) else type(item)


def refuse(items: list[Item], error: FrontierError) -> None:
    """Tell those who wait for an answer that there will be none."""
    for item in items:
        if isinstance(item, Question) and not item.answer.done():
            item.answer.set_exception(error)
