"""The store in SQL: a file of SQLite or a database of PostgreSQL, behind one thread.

    SqlStore ──Fifo──▶ one thread ──▶ Work (`work`) ──▶ `writing`, `lanes`, `reading` ──▶ the tables (`schema`)

The store link calls `SqlStore`, which appends each batch and question to a FIFO and never touches the tables; the thread alone
holds the connection and posts its answers.

The thread takes all that waits, up to a bound, and works it off in order as one transaction. Before it begins one it
lingers, so that a hundred pages share a commit and its sync. If the core hurries it, because nothing can be leased or much is
not durable, it begins `REST` times the last transaction's time after that one. Slow transactions therefore hold more batches:
a server of PostgreSQL takes ten times as long for one as a file of SQLite. For a `Question` it begins at once.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from anabranch.frontier.errors import FrontierError, StoreInUse, StoreUnavailable
from anabranch.frontier.records import GateKey, Turn
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import (
    Answer,
    Batch,
    FailedRecord,
    GatesRead,
    LaneId,
    Opening,
    Place,
    RetryReads,
)
from anabranch.frontier.stores.sql import reading, worker
from anabranch.frontier.stores.sql.reading import Asked, Item, Question
from anabranch.frontier.stores.sql.sqlite import SqliteFile, owner_line, twice
from anabranch.frontier.stores.sql.work import Database, Patience, Session, Work, refuse
from anabranch.frontier.stores.sql.worker import Shared, ShareWorker
from anabranch.frontier.stores.sql.writing import Owner, SoleOwner

#: Rows of one transaction, unless a single batch has more.
MAX_ROWS = 10_000
#: How long a transaction that fails is tried again, unless it is said otherwise.
RETRY_S = 30.0
#: How long more is gathered for a transaction if no answer is waited for.
LINGER_S = 0.05
#: A hurried transaction begins so many times the last one's duration after it, but no later than one that is not hurried.
REST = 2.0


class Fifo:
    """Batches and questions that are not worked off yet. Any thread may append; one takes."""

    def __init__(
        self,
        linger_s: float = LINGER_S,
        idle_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._linger_s = linger_s
        self._idle_s = idle_s
        self._clock = clock
        self._items: deque[Item] = deque()
        self._lock = Lock()
        self._changed = Condition(self._lock)
        #: The taker sleeps. Only then a notice, the dearest step here, is of use.
        self._is_awaited = False
        self._is_hurried = False
        self._is_asked = False  #: an answer is waited for
        self._is_closed = False

    def append(self, item: Item) -> bool:
        """Put it at the end; False if it is closed."""
        with self._lock:
            if self._is_closed:
                return False
            self._items.append(item)
            if isinstance(item, Question):
                self._is_hurried = self._is_asked = True
            if self._is_awaited or isinstance(item, Question):
                self._is_awaited = False
                self._changed.notify()
        return True

    def hurry(self) -> None:
        """Hand out what waits without lingering, see `REST`. O(1), any thread."""
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
        """Hand out all that waits, a transaction's worth at a time; wait and linger for more; end when closed and empty.

        If nothing comes for `idle_s` seconds, the group is empty.
        """
        rested_s = -math.inf  # when the next hurried group may be handed out
        is_behind = False  # the last group could not hold all
        while True:
            with self._lock:
                self._is_awaited = not (self._items or self._is_closed)
                came = self._changed.wait_for(lambda: self._items or self._is_closed, self._idle_s)
                self._is_awaited = False
                if came and not is_behind:
                    lingers_s = self._clock() + self._linger_s
                    rest_s = min(rested_s - self._clock(), self._linger_s)
                    self._changed.wait_for(lambda: self._is_asked or self._is_closed, max(rest_s, 0.0))
                    left_s = max(lingers_s - self._clock(), 0.0)
                    self._changed.wait_for(lambda: self._is_hurried or self._is_closed, left_s)
                group = self._take_group()
                self._is_hurried = self._is_hurried and bool(self._items)
                self._is_asked = self._is_asked and bool(self._items)
                is_behind = bool(self._items)
            if not group and came:
                return
            began_s = self._clock()
            yield group
            ended_s = self._clock()
            rested_s = ended_s + REST * (ended_s - began_s)

    def _take_group(self) -> list[Item]:
        group, rows = list[Item](), 0
        while self._items:
            item = self._items[0]
            rows += item.rows if isinstance(item, Batch) else 0
            if group and rows > MAX_ROWS:
                break
            group.append(self._items.popleft())
        return group


T = TypeVar("T")
P = ParamSpec("P")


def _question(read: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[SqlStore, P], T]:
    """The method that has `read` called in the store thread and returns its answer (blocks, any thread)."""

    def ask(self: SqlStore, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self._wait_for(lambda connection: read(connection, *arguments, **named))

    return ask


class SqlRetryReads:
    """Answers a retry's questions in the store thread; `reading` gives the cost of each."""

    def __init__(self, wait_for: Callable[[Callable[[Connection], Any]], Any]) -> None:
        """`wait_for` has a question answered in the store thread."""
        self._wait_for = wait_for

    def failed_after(self, after: int, limit: int) -> list[FailedRecord]:
        """Failed rows by ordinal, above one."""
        found: list[FailedRecord] = self._wait_for(partial(reading.failed_after, after=after, limit=limit))
        return found

    def by_status(self) -> Mapping[int, int]:
        """How many have failed."""
        found: Mapping[int, int] = self._wait_for(reading.failures)
        return found

    def blocked(self, now_s: float) -> set[int]:
        """The gates that are blocked for longer."""
        found: set[int] = self._wait_for(partial(reading.blocked, now_s=now_s))
        return found


class SqlStore:
    """A `FrontierStore` that survives its process: all that is `Synced` is on the disk. One owner at a time.

    A transaction that fails for a reason that may pass (a full disk, a server that is away) is kept whole and tried again
    for `retry_s` seconds, `RETRY_S` by default; that of a worker until it is kept or others have its shares. After that, or at
    once if no other try can help, comes `StoreFailed`: all later batches are dropped, and all later questions raise the error.
    """

    def __init__(
        self,
        target: Path | str,
        *,
        max_pages: int | None = None,
        seen: SeenFilter | None = None,
        retry_s: float | None = None,
        shared: Shared | None = None,
    ) -> None:
        """A path is a file of SQLite, a string the URL of a PostgreSQL database; its tables live in the connection's schema.

        `max_pages` bounds the file's size: beyond it the store is full. `seen` is a filter that may block: it is asked
        before rows are written and marked after they are durable, both in the store thread, and belongs to that thread from
        `open` to `close`. `shared`: other workers have the same tables open. Raises: PolicyError for a URL of another kind.
        """
        self._database: Database
        if isinstance(target, Path):
            self._database = SqliteFile(target, max_pages, is_shared=shared is not None)
        else:
            from anabranch.frontier.stores.sql.postgres import PostgresDatabase  # noqa: PLC0415  the driver is an extra

            self._database = PostgresDatabase(target, lock_s=None if shared is None else shared.worker.lock_s)
        self.share_rule = None if shared is None else shared.rule  #: of a job of several workers
        self._owner: Owner = SoleOwner()
        if shared is not None:
            self._owner = self._worker = ShareWorker(
                shared.rule, shared.worker, self._database.session_of, self._database.end_session
            )
        self._seen = seen
        self.retry_reads: RetryReads = SqlRetryReads(self._wait_for)
        patient_s = RETRY_S if shared is None else math.inf
        self._retry_s = patient_s if retry_s is None else retry_s
        self._answers: deque[Answer] = deque()
        # Of the present opening:
        self._thread: Thread | None = None
        self._fifo = Fifo()
        self._fifo.close()  # until it is opened
        self._patience = Patience(self._retry_s)
        self._close_clean = False
        self._failure: FrontierError | None = None

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Opening:
        """Create or open the tables and mark them unclean (blocks). `on_change` is called from the store thread.

        Raises: FormatMismatch, StoreInUse naming the owner, StoreFull, StoreUnavailable.
        """
        if self._thread is not None:
            raise StoreInUse("this store is open already; close it first, or make another one")

        def post(answers: list[Answer]) -> None:
            self._answers.extend(answers)
            on_change()

        self._post = post
        self._fifo, self._patience, self._failure = Fifo(idle_s=self._owner.idle_s), Patience(self._retry_s), None
        opened: Future[Opening] = Future()
        tables = partial(self._owner.open, place=self._database.place, identity=identity, now_s=now_s)
        # A daemon: a forgotten `close` must not keep the process from ending.
        thread = Thread(target=self._run, args=(tables, opened, post), name="anabranch-store", daemon=True)
        thread.start()
        try:
            opening = opened.result()
        except FrontierError:
            thread.join()
            raise
        self._thread = thread
        return opening

    def write(self, batch: Batch) -> None:
        """Take a batch; `Synced` answers when it is durable."""
        self._append(batch)

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        """Ask for the first `limit` rows of a lane that do not wait."""
        self._append(Asked(reading.read_heads, (lane, limit, with_queue)))

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        """Ask for the servable lanes of a gate after a turn."""
        self._append(Asked(reading.read_lanes, (gate, after, limit)))

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        """Take one gate into memory, made if it is new."""
        self._append(Asked(reading.take_gate, (gate, key, lanes, self._owner.share_of), takes=True))

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        """Take up to `limit` gates into memory that are not there and have something to serve."""
        self._append(Asked(self._take_gates, (now_s, limit, lanes), takes=True))

    def ask_retries(self, after: tuple[float, int] | None, limit: int) -> None:
        """Ask for waiting rows after (due_s, ordinal)."""
        self._append(Asked(reading.read_retries, (after, limit, self._owner.shares_epoch)))

    def hurry(self) -> None:
        """Begin the next transaction soon, see `REST`."""
        self._fifo.hurry()

    def limit_retries(self) -> None:
        """Try what fails for `RETRY_S` seconds at most from now on (any thread)."""
        self._patience.limit(RETRY_S)

    def take_answers(self) -> list[Answer]:
        """All answers since the last call, oldest first."""
        answers: list[Answer] = []
        while self._answers:
            answers.append(self._answers.popleft())
        return answers

    def flush(self) -> None:
        """Return when every batch written so far is durable (blocks). Raises: StoreUnavailable."""
        self._wait_for(lambda _: None)

    def note(self, notes: Mapping[str, str]) -> None:
        """Store these facts by name, durably (blocks, any thread). Raises: StoreUnavailable."""
        self._wait_for(lambda connection: self._owner.note(connection, notes))

    def openings(self) -> Mapping[str, int]:
        """The openings that this state of the store comes from, by name: the number of the last batch of each (blocks)."""
        return self._wait_for(self._owner.openings)

    def release(self, shares: Collection[int]) -> None:
        """Give shares back that are leaving, after all that was written for them; `SharesHeld` answers."""
        self._append(self._worker.release(shares, self._post))

    def safe_until_s(self) -> float:
        """Until when this worker's shares are its own for certain, by the monotonic clock (any thread)."""
        return self._worker.safe_until_s

    job_counts = _question(reading.job_counts)  #: of a shared store
    workers = _question(worker.workers)
    parcels = _question(reading.read_parcels)

    def close(self, *, clean: bool) -> None:
        """Write all, mark the store clean if asked, let go of it (blocks). A second call does nothing.

        A transaction that waits for another try gets it at once, and more as long as the time allows. After a failure the store
        is never marked clean. Raises: the failure, if `clean` was asked.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._close_clean = clean
        self._fifo.close()
        self._patience.limit(RETRY_S)
        self._patience.hurry()
        thread.join()
        if clean and self._failure is not None:
            raise self._failure

    # Questions of others: `reading` has the cost of each

    look_up = _question(reading.look_up)
    ended = _question(reading.look_up_ended)
    of_url = _question(reading.of_url)
    queue = _question(reading.queue)
    queues = _question(reading.queues)
    lanes = _question(reading.lanes)
    gate = _question(reading.gate)
    queued = _question(reading.read_queued)
    ended_after = _question(reading.ended_after)
    tally = _question(reading.tally)
    counters = _question(reading.recount)
    _queued_keys = _question(reading.queued_keys)
    _ended_keys = _question(reading.ended_keys)

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        """Every dedup key of a row with an ordinal above `after`, in chunks.

        Rows that move while it runs may be missed or come twice: ask before anything is written.
        """
        place: Place | None = None
        while rows := self._queued_keys(place, chunk, after):
            place = rows[-1][1]
            yield [key for key, _ in rows]
            if len(rows) < chunk:
                break
        while ended := self._ended_keys(after, chunk):
            after = ended[-1][1]
            yield [key for key, _ in ended]

    def _run(
        self,
        tables: Callable[[Connection], Opening],
        opened: Future[Opening],
        post: Callable[[list[Answer]], None],
    ) -> None:
        """The thread, from the opening to the end of the FIFO. `open` raises an error of the opening, `close` a later one."""
        failure: FrontierError = StoreUnavailable(f"{self._database.place}: the store is not open")
        try:
            session, opening = self._begun(tables)
            with closing(session):
                opened.set_result(opening)
                work = Work(session, self._owner, opening, self._seen, post, self._patience)
                for group in self._fifo.groups():
                    work.do([*group, *self._owner.tasks(post)])
                if self._close_clean and work.failure is None:
                    work.do([Question(partial(self._owner.close, clean=True))])
                self._failure = work.failure
                if work.failure is None:
                    self._database.let_go(session.connection, clean=self._close_clean)
        except Exception as error:  # noqa: BLE001  it is raised in `open` or `close`
            self._failure = failure = self._database.translated(error)
            if not opened.done():
                opened.set_exception(failure)
        finally:
            self._fifo.close()
            for group in self._fifo.groups():
                refuse(group, failure)

    def _begun(self, tables: Callable[[Connection], Opening]) -> tuple[Session, Opening]:
        """Open a session and its tables, and announce the owner. A file gets a second try: the first leaves nothing."""

        def begin() -> tuple[Session, Opening]:
            with ExitStack() as stack:
                session = Session(self._database)
                stack.callback(session.close)
                opening = tables(session.connection)
                self._database.announce(session.connection, owner_line(time.time()))
                stack.pop_all()
            return session, opening

        return twice(begin) if isinstance(self._database, SqliteFile) else begin()

    def _take_gates(self, connection: Connection, now_s: float, limit: int, lanes: int) -> GatesRead:
        return reading.take_gates(connection, now_s, limit, lanes, self._owner.serving)

    def _append(self, item: Item) -> None:
        if not self._fifo.append(item):
            raise StoreUnavailable(f"{self._database.place}: the store is not open")

    def _wait_for(self, ask: Callable[[Connection], T]) -> T:
        question = Question(ask)
        self._append(question)
        answer: T = question.answer.result()
        return answer
