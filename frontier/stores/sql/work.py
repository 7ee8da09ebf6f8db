"""The store thread's work: each group of items is one transaction, tried again until it is kept or no try can help.

`store` hands out the groups; `writing` adds the batches up, `reading` answers the questions.

A read is done at its place in the order and its answer posted at once; `Synced` comes after the commit. When a transaction
fails, some of its reads have been answered. That is safe: nothing was kept, no other owner writes (lock and epoch), and the
group is kept whole. The next try finds the same rows, so every read, also one that takes gates, has the same answer. It is
done again for what it writes, but posted only once. If no try succeeds, the core gets `StoreFailed`, and nothing that it made
of such an answer was durable.

A COMMIT that failed may have taken place. Each transaction that writes leaves a mark, by which the next try finds out.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import groupby
from threading import Condition
from typing import Any, Protocol

from sqlalchemy import Connection

from anabranch.frontier.errors import (
    FrontierError,
    InvariantBroken,
    StoreFull,
    StoreSetBack,
    StoreUnavailable,
    caused_by,
)
from anabranch.frontier.records import Row
from anabranch.frontier.seen import FollowingFilter, SeenFilter
from anabranch.frontier.stores.contract import Answer, Batch, Counters, Opening, StoreFailed, Synced, Troubled
from anabranch.frontier.stores.sql.reading import Asked, Item, Question, read_all
from anabranch.frontier.stores.sql.writing import Owner, TransactionWriter

#: Seconds before the second try; each later wait is twice as long, up to the longest.
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0


class Patience:
    """Waits between tries, up to `retry_s` seconds from the first failure. One thread waits; any may hurry it."""

    def __init__(self, retry_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`retry_s` 0: there is no second try."""
        self.retry_s = retry_s
        self._clock = clock
        self._changed = Condition()
        self._is_hurried = False
        self._ends_s: float | None = None  #: by the clock; None = nothing has failed
        self._wait_s = FIRST_WAIT_S

    def renew(self) -> None:
        """After a success: the next failure has the full time again."""
        self._ends_s = None
        self._wait_s = FIRST_WAIT_S

    def wait(self) -> bool:
        """Wait for the next try; False, at once, if the time is up. The last try comes when the time ends."""
        with self._changed:  # or else a `limit` at the same moment is overwritten
            now_s = self._clock()
            if self._ends_s is None:
                self._ends_s = now_s + self.retry_s
            left_s = self._ends_s - now_s
            if left_s <= 0:
                return False
            is_hurried = self._changed.wait_for(lambda: self._is_hurried, min(self._wait_s, left_s))
            self._is_hurried = False
        self._wait_s = FIRST_WAIT_S if is_hurried else min(2 * self._wait_s, LONGEST_WAIT_S)
        return True

    def limit(self, retry_s: float) -> None:
        """Wait for so long at most from now on."""
        with self._changed:
            self.retry_s = min(self.retry_s, retry_s)
            if self._ends_s is not None:
                self._ends_s = min(self._ends_s, self._clock() + retry_s)

    def hurry(self) -> None:
        """End the present wait, or the next one, and begin with short waits again."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify()


class FilterFailed(StoreUnavailable):
    """The filter could not be asked or marked; it may be able to later."""


class FilterFull(FilterFailed, StoreFull):
    """The filter's disk is full or read-only."""


#: Error numbers of a filter's disk that is full or read-only.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


@contextmanager
def _filter_failures() -> Iterator[None]:
    try:
        yield
    except (OSError, StoreUnavailable) as error:
        is_full = isinstance(error, OSError) and error.errno in _FULL
        kind: type[FilterFailed] = FilterFull if is_full or isinstance(error, StoreFull) else FilterFailed
        raise kind(f"the filter cannot be used: {error}") from error


class Database(Protocol):
    """One database that holds one crawl. All but `place` belongs to the store thread."""

    @property
    def place(self) -> str:
        """The database's name in errors; without a password."""
        ...

    def connected(self) -> AbstractContextManager[Connection]:
        """The one connection, with the lock that keeps others out until it ends. Raises: what `translated` understands."""

    def is_lost(self, connection: Connection) -> bool:
        """The connection is broken, and the lock with it."""
        ...

    def announce(self, connection: Connection, owner: str) -> None:
        """Leave the owner's line where others that are refused can read it."""
        ...

    def let_go(self, connection: Connection, *, clean: bool) -> None:
        """Tidy up at the end: outside of a transaction, nothing is written after it."""

    def translated(self, error: Exception) -> FrontierError:
        """The error as one of this room; its one line names the place and what to do."""
        ...

    def session_of(self, connection: Connection) -> str:
        """A name of this connection's session that `end_session` understands."""
        ...

    def end_session(self, connection: Connection, session: str) -> None:
        """End another session, and the transaction that it may be stuck in; nothing if it has ended or cannot be ended."""

    def is_passing(self, error: Exception) -> bool:
        """The cause may pass (a full disk, a server that is away), so another try makes sense."""
        ...


class Session:
    """The connection to the database; it is replaced when it was lost."""

    def __init__(self, database: Database) -> None:
        """Connect. Raises: what `Database.translated` understands."""
        self.database = database
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(database.connected())

    def recover(self, owner: Owner) -> None:
        """After a failure: end what is left of the transaction; connect again if the connection is lost.

        Raises: StoreInUse if the store had another owner meanwhile, and what `Database.translated` understands.
        """
        if not self.database.is_lost(self.connection):
            self.connection.connection.rollback()  # a COMMIT that fails may leave its transaction open
            with self.connection.begin():
                owner.rejoin(self.connection, is_new=False)
            return
        self.close()
        self.connection = self._stack.enter_context(self.database.connected())
        with self.connection.begin():
            owner.rejoin(self.connection, is_new=True)

    def close(self) -> None:
        """Let go of the connection and its lock."""
        self._stack.close()


class Work:
    """Works off one group after another, in the store thread."""

    def __init__(
        self,
        session: Session,
        owner: Owner,
        opening: Opening,
        seen: SeenFilter | None,
        post: Callable[[list[Answer]], None],
        patience: Patience,
    ) -> None:
        self._session = session
        self._totals: Counters = opening.counters
        self._owner = owner
        self._seen = seen
        self._post = post
        self._patience = patience
        self._marks = 0
        self._trouble = ""  #: the last words that the core got about a try that failed
        self.failure: StoreUnavailable | None = None  #: why nothing more is written
        # Of the present group, kept from one try to the next:
        self._items: list[Item] = []
        self._batches: list[Batch] | None = None  #: without the rows that the filter knows; None = it was not asked yet
        self._known: list[Row] = []  #: new rows that the filter knows
        self._posted = 0  #: reads that were answered, counted in their order
        self._mark: str | None = None  #: of its transaction; None: it writes nothing that may not be written twice
        #: The last try, if it came to its COMMIT, with the calls that answer its questions.
        self._worked: tuple[TransactionWriter, list[Callable[[], None]]] | None = None

    def do(self, items: list[Item]) -> None:
        """Work off one group. After a failure nothing more is written, and every question gets the error."""
        if not items:
            return
        if self.failure is not None:
            refuse(items, self.failure)
            return
        self._begin(items)
        is_over = self._try(is_first=True)
        while not is_over:
            is_over = self._try(is_first=False)
        self._begin([])  # keeps no rows alive

    def _begin(self, items: list[Item]) -> None:
        self._items, self._batches, self._known = items, None, []
        self._posted, self._mark, self._worked = 0, None, None

    def _try(self, *, is_first: bool) -> bool:
        """One try; False: there must be another one, and it is time for it."""
        database = self._session.database
        try:
            if not is_first:
                self._session.recover(self._owner)
            self._transact()
        except Exception as error:  # noqa: BLE001  whatever it is, the core must hear of it: a dead thread reports nothing
            self._owner.lanes.forget()
            is_filter = isinstance(error, FilterFailed)
            if is_filter or database.is_passing(error):
                cause = f"the filter: {error.__cause__}" if is_filter else f"the store: {database.translated(error)}"
                self._report_trouble(cause)
                if self._patience.wait():
                    return False
            if isinstance(error, InvariantBroken):  # rows that this process has seen are gone, or are others
                error = caused_by(StoreSetBack(f"{error}: the store is not as this process left it"), error)
            self._fail(database.translated(error))
        else:
            self._patience.renew()
        return True

    def _transact(self) -> None:
        """To the COMMIT, unless an earlier one took place; then the filter's marks, then the answers."""
        if self._worked is None or not self._is_kept():
            self._write()
        assert self._worked is not None
        writing, answer_questions = self._worked
        self._owner.committed(writing.adopted)
        if self._seen is not None:
            # Duplicates too: the store has their keys, so the filter may know them.
            keys = [row.dedup_key() for batch in self._batches or () for row in batch.new]
            if keys:
                with _filter_failures():
                    if isinstance(self._seen, FollowingFilter) and writing.number is not None:
                        self._seen.note_batch(writing.number)
                    self._seen.mark(keys)
        self._totals = totals = writing.totals
        self._report_trouble("")
        if writing.number is not None:
            duplicates, shown = [*self._known, *writing.duplicates], self._owner.shown(totals)
            self._post([Synced(writing.number, duplicates, shown.retired, shown.paused, shown.queues, shown.retried)])
        for answer in answer_questions:
            answer()

    def _write(self) -> None:
        connection = self._session.connection
        self._worked = None
        if self._batches is None:
            batches = [item for item in self._items if isinstance(item, Batch)]
            if self._seen is not None:
                self._ask_filter(batches, self._seen)
            self._batches = batches
        writing = TransactionWriter(connection, self._totals, self._owner)
        with connection.begin():
            if not self._batches and any(isinstance(item, Asked) and item.takes for item in self._items):
                self._owner.check(connection)
            for batch in self._batches:
                writing.add(batch)
            writing.flush()
            answer_questions = self._read()
            self._leave_mark()
            self._worked = writing, answer_questions

    def _read(self) -> list[Callable[[], None]]:
        """Read once all batches are written: so rows reach the tables in few large statements. The result answers questions.

        A read may see rows that were written after it. That is safe: whoever asked leaves out rows that were leased or in
        memory by then, knows of rows that came later, and cannot want rows that a later batch took away.
        """
        questions: list[Callable[[], None]] = []
        answers: list[Answer] = []
        for kind, items in groupby((item for item in self._items if not isinstance(item, Batch)), key=_kind):
            if kind is Question:
                questions += [self._ask(item) for item in items if isinstance(item, Question)]
            else:
                asked = [item.arguments for item in items if isinstance(item, Asked)]
                answers += read_all(self._session.connection, kind, asked)
        fresh = answers[self._posted :]
        if fresh:
            self._posted = len(answers)
            self._post(fresh)
        return questions

    def _ask(self, question: Question) -> Callable[[], None]:
        """Find the answer; the result hands it over."""
        try:
            return partial(question.answer.set_result, question.ask(self._session.connection))
        except StoreUnavailable:
            raise
        except FrontierError as error:  # an answer too: the recount found a difference
            return partial(question.answer.set_exception, error)

    def _leave_mark(self) -> None:
        """Number the transaction in itself."""
        if not any(isinstance(item, Batch) or (isinstance(item, Asked) and item.takes) for item in self._items):
            return
        self._marks += 1
        self._mark = str(self._marks)
        self._owner.leave_mark(self._session.connection, self._mark)

    def _is_kept(self) -> bool:
        """The last try's COMMIT failed, or its answer was lost, and it took place all the same."""
        if self._mark is None:
            return False
        with self._session.connection.begin():
            return self._owner.is_marked(self._session.connection, self._mark)

    def _ask_filter(self, batches: list[Batch], seen: SeenFilter) -> None:
        """Take out the new rows that the filter knows, by one question for all batches; forced ones are not asked about.

        Once for all tries: a filter that others mark too may answer otherwise later. Raises: FilterFailed.
        """
        asked = [row for batch in batches for row in batch.new if row.ordinal not in batch.forced]
        if not asked:
            return
        with _filter_failures():
            verdicts = seen.unseen(list(map(Row.dedup_key, asked)))
        self._known = [row for row, is_unseen in zip(asked, verdicts, strict=True) if not is_unseen]
        dead = {row.ordinal for row in self._known}
        for batch in batches if dead else ():
            batch.new[:] = [row for row in batch.new if row.ordinal not in dead]

    def _report_trouble(self, cause: str) -> None:
        """Report it to the core, once."""
        if cause != self._trouble:
            self._trouble = cause
            self._post([Troubled(cause, self._patience.retry_s)])

    def _fail(self, error: FrontierError) -> None:
        """Nothing is written from now on. Any error makes the store unavailable; the line names what failed."""
        kind = type(error) if isinstance(error, StoreUnavailable) else StoreUnavailable
        place = self._session.database.place
        is_named = isinstance(error, FilterFailed) or str(error).startswith(place)
        self.failure = failure = caused_by(kind(str(error) if is_named else f"{place}: {error}"), error)
        refuse(self._items, failure)
        self._post([StoreFailed(failure)])


def _kind(item: Item) -> Callable[..., Any]:
    """Neighbours of one kind are worked off together: reads by their function, the others by their type."""
    return item.read if isinstance(item, Asked) else type(item)


def refuse(items: list[Item], error: FrontierError) -> None:
    """Raise this error where an answer is waited for."""
    for item in items:
        if isinstance(item, Question) and not item.answer.done():
            item.answer.set_exception(error)
