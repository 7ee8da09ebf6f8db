"""What the store thread does with each group of items: one transaction, tried again until it is kept or hope is lost.

A read is done at its place in the order and its answer posted at once; `Synced` comes after the commit. So when a
transaction fails, some of its reads have been answered. That is safe: nothing was kept, nobody else writes (lock and
epoch), and the group is kept whole. So the next try finds the same rows, and every read, also one that takes gates, comes
to the same answer; it is done again for what it writes, but posted only if it was not posted before. If no try goes well,
the core is told that the store failed, and nothing that it made of such an answer was durable.

Whether a COMMIT that failed took place all the same is asked of the database: each transaction that writes leaves its mark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from anabranch.frontier.errors import FrontierError, StoreUnavailable
from anabranch.frontier.models import Row
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores import statements
from anabranch.frontier.stores.base import Counters, Opening
from anabranch.frontier.stores.blockingfilter import FilterFailed, known_rows, mark
from anabranch.frontier.stores.database import Database
from anabranch.frontier.stores.dialect import fetch, write
from anabranch.frontier.stores.lanechanges import KnownLanes
from anabranch.frontier.stores.messages import Answer, Batch, StoreFailed, Synced, Troubled
from anabranch.frontier.stores.patience import Patience
from anabranch.frontier.stores.reading import read_all
from anabranch.frontier.stores.thread import Asked, Item, Question
from anabranch.frontier.stores.writing import Writing, check_epoch

_MARK = "transaction"  # name in `crawl`: the last one that wrote, "epoch.number"


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
class Group:
    """Items that are kept together, and what is known of them after a try that failed."""

    items: list[Item]
    batches: list[Batch] | None = None  #: without what the filter knows; None = it was not asked yet
    known: list[Row] = field(default_factory=list)  #: new rows that the filter knows
    posted: int = 0  #: reads that were answered, counted in their order
    mark: str | None = None  #: the mark of its transaction; None: it writes nothing that may not be written twice
    has_failed: bool = False
    worked: Worked | None = None  #: what the last try came to, if it came to its COMMIT


@dataclass(frozen=True, slots=True)
class Worked:
    """A transaction that needs only its COMMIT."""

    writing: Writing
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
        self._trouble = ""  #: what the core was told last of a try that failed
        self.failure: StoreUnavailable | None = None  #: why nothing more is written

    def do(self, items: list[Item]) -> None:
        """Work off one group. After a failure nothing is written any more, and whoever waits is told."""
        if self.failure is not None:
            refuse(items, self.failure)
            return
        group = Group(items)
        while not self._try(group):
            pass

    def _try(self, group: Group) -> bool:
        """One try; False: there must be another one, and it is time for it."""
        try:
            if group.has_failed:
                self._session.recover(self._epoch)
            self._transact(group)
        except Exception as error:  # noqa: BLE001  whatever it is, the core must hear of it: a dead thread says nothing
            group.has_failed = True
            self._lanes.forget()
            if self._is_passing(error):
                self._tell_trouble(self._trouble_words(error))
                if self._patience.wait():
                    return False
            self._fail(group.items, self._session.database.translated(error))
        else:
            self._patience.renew()
        return True

    def _transact(self, group: Group) -> None:
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

    def _write(self, group: Group) -> None:
        connection = self._session.connection
        group.worked = None
        self._ask_filter(group)
        writing = Writing(connection, self._totals, self._epoch, self._lanes)
        with connection.begin():
            tell = self._work_off(group, writing)
            writing.flush()
            self._leave_mark(group)
            group.worked = Worked(writing, tell)

    def _work_off(self, group: Group, writing: Writing) -> list[Callable[[], None]]:
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
            group.posted = len(answers)
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

    def _leave_mark(self, group: Group) -> None:
        """Number the transaction in itself. The epoch is part of the mark: numbers begin anew with each owner."""
        if not any(isinstance(item, Batch) or (isinstance(item, Asked) and item.takes) for item in group.items):
            return
        self._marks += 1
        group.mark = f"{self._epoch}.{self._marks}"
        write(self._session.connection, statements.PUT_FACTS, [(_MARK, group.mark)])

    def _is_kept(self, group: Group) -> bool:
        """The last try's COMMIT failed, or was not heard of, and took place all the same."""
        if group.mark is None:
            return False
        with self._session.connection.begin():
            return fetch(self._session.connection, statements.FACT, (_MARK,)) == [(group.mark,)]

    # The filter that blocks

    def _ask_filter(self, group: Group) -> None:
        """Once for all tries: a filter that others mark too may answer otherwise later."""
        if group.batches is not None:
            return
        batches = [item for item in group.items if isinstance(item, Batch)]
        if self._seen is not None:
            group.known = known_rows(batches, self._seen)
            dead = {row.ordinal for row in group.known}
            for batch in batches if dead else ():
                batch.new = [row for row in batch.new if row.ordinal not in dead]
        group.batches = batches

    def _mark_seen(self, group: Group) -> None:
        """Mark what is committed. Duplicates too: the store has their keys, so the filter may know them."""
        if self._seen is None:
            return
        keys = [row.dedup_key() for batch in group.batches or () for row in batch.new]
        if keys:
            mark(keys, self._seen)

    def _synced(self, group: Group, writing: Writing) -> Synced:
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
        failure = kind(str(error) if is_named else f"{place}: {error}")
        failure.__cause__ = error
        self.failure = failure
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
