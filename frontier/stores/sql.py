"""The store in SQL: a file of SQLite, behind one thread.

What is said is appended to a FIFO and worked off by the thread (`thread`), which alone holds the connection. This class is the
face: it never touches the tables itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

from sqlalchemy import Connection

from frontier.errors import FrontierError, StoreUnavailable
from frontier.models import UrlRecord
from frontier.stores import sqlite
from frontier.stores.base import Answer, Batch, Counters, LaneId, Opening
from frontier.stores.opening import mark, open_tables
from frontier.stores.reading import FIRST_ORDINAL, FIRST_PLACE, ended_keys, look_up, look_up_ended, queued_keys, recount
from frontier.stores.thread import Fifo, HeadsAsked, Item, Question, Work, refuse

T = TypeVar("T")


class SqlStore:
    """A `FrontierStore` that survives its process: what was `Synced` is on the disk. One owner at a time.

    After a failure (`StoreFailed`) all that is written or asked is dropped, and whoever waits gets the error.
    """

    def __init__(self, path: Path, *, max_pages: int | None = None) -> None:
        """`path` is the file; `max_pages` bounds its size (pages of 4 KiB): beyond it the store is full."""
        self._path = path
        self._max_pages = max_pages
        self._fifo = Fifo()
        self._answers: deque[Answer] = deque()
        self._thread: Thread | None = None
        self._close_clean = False
        self._failure: FrontierError | None = None

    def open(self, identity: dict[str, str], on_change: Callable[[], None]) -> Opening:
        """Create or open the file and mark it unclean (blocks).

        `on_change` is called from the store thread. Raises: FormatMismatch, StoreInUse, StoreFull, StoreUnavailable.
        """
        assert self._thread is None, "the store is open"
        self._fifo, self._failure = Fifo(), None
        opened: Future[Opening] = Future()
        arguments = (identity, on_change, opened)
        # A daemon: a forgotten `close` must not keep the process from ending.
        self._thread = Thread(target=self._run, args=arguments, name="anabranch-store", daemon=True)
        self._thread.start()
        try:
            return opened.result()
        except FrontierError:
            self.close(clean=False)
            raise

    def write(self, batch: Batch) -> None:
        """Take a batch; `Synced` will tell when it is durable."""
        self._append(batch)

    def ask_heads(self, lane: LaneId, limit: int) -> None:
        """Ask for the first `limit` rows of a lane that do not wait; `HeadsRead` answers."""
        self._append(HeadsAsked(lane, limit))

    def take_answers(self) -> list[Answer]:
        """All answers since the last call, oldest first."""
        answers: list[Answer] = []
        while self._answers:
            answers.append(self._answers.popleft())
        return answers

    def flush(self) -> None:
        """Return when every batch written so far is durable (blocks). Raises: StoreUnavailable."""
        self._wait_for(lambda _: None)

    def look_up(self, key: bytes) -> UrlRecord | None:
        """What is known of the URL with this dedup key (blocks; for a queued URL it costs a scan, see `reading`)."""
        return self._wait_for(partial(look_up, key=key))

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """What is known of those of these URLs that have ended, by dedup key (blocks; two seeks for each)."""
        return self._wait_for(partial(look_up_ended, keys=keys))

    def keys(self, chunk: int) -> Iterator[list[bytes]]:
        """Every dedup key in the store, ended rows included, in chunks, read as they are taken (blocks).

        Rows that move while it runs may be missed or come twice: ask before anything is written.
        """
        for read, first in ((queued_keys, FIRST_PLACE), (ended_keys, FIRST_ORDINAL)):
            place: tuple[int, ...] | None = first
            while place is not None:
                keys, place = self._wait_for(partial(read, after=place, limit=chunk))
                if keys:
                    yield keys

    def counters(self) -> Counters:
        """The totals, recounted from the rows (blocks; costs a scan). Raises: InvariantBroken, naming a difference."""
        return self._wait_for(recount)

    def close(self, *, clean: bool) -> None:
        """Write all, mark the store clean if asked, let go of it (blocks). Calling it twice is harmless.

        After a failure the store is never marked clean. Raises: the failure, if `clean` was asked.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._close_clean = clean
        self._fifo.close()
        thread.join()
        if clean and self._failure is not None:
            raise self._failure

    def _append(self, item: Item) -> None:
        if self._thread is None or not self._fifo.append(item):
            raise StoreUnavailable(f"{self._path}: the store is not open")

    def _wait_for(self, ask: Callable[[Connection], T]) -> T:
        question = Question(ask)
        self._append(question)
        answer: T = question.answer.result()
        return answer

    # In the store thread

    def _run(self, identity: dict[str, str], on_change: Callable[[], None], opened: Future[Opening]) -> None:
        """From the opening to the end of the FIFO. An error before `opened` is its answer, one after it is `_failure`."""
        failure: FrontierError = StoreUnavailable(f"{self._path}: the store is not open")
        try:
            with sqlite.connected(self._path, self._max_pages) as connection:
                opening = open_tables(connection, self._path, identity)
                opened.set_result(opening)
                self._serve(connection, opening.counters, on_change)
        except Exception as error:  # noqa: BLE001  it is raised where somebody waits: in `open` or `close`
            self._failure = failure = sqlite.translated(self._path, error)
            if not opened.done():
                opened.set_exception(failure)
        finally:
            self._fifo.close()
            for group in self._fifo.groups():
                refuse(group, failure)

    def _serve(self, connection: Connection, totals: Counters, on_change: Callable[[], None]) -> None:
        def post(answers: list[Answer]) -> None:
            self._answers.extend(answers)
            on_change()

        work = Work(connection, totals, post, partial(sqlite.translated, self._path))
        for group in self._fifo.groups():
            work.do(group)
        self._failure = work.failure
        if self._close_clean and work.failure is None:
            with connection.begin():
                mark(connection, clean=True)
            sqlite.fold_log(connection)
