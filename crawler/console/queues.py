"""The queues and the hosts of a job, of any number, as pages of a grid: sorted, filtered, at any place.

    tables = QueueTables(folder_of_the_console, jobs)
    page = tables.queues("news", PageQuery(sort="urls", descending=True, text="example", states=("ready",), offset=600_000))
    page.rows, page.total                               # ListedQueue, …; how many match
    tables.queues("news", PageQuery(sort="urls", after=(page.rows[-1].urls, page.rows[-1].key)))     # the rows after a row
    tables.gates("news", PageQuery(sort="troubles", descending=True))
    tables.queue("news", "example.com").urls            # the next ones to be fetched
    tables.renew("news")                                # read the queue now
    tables.close()

The columns that can be sorted are `key`, `state` and the columns of `frontier.stores.sql.browse`.

All methods block; call them in threads. The first call for a job reads its queue (a million queues: some seconds) in a
separate process, from a copy of the file in the console's folder, or from the database. So a crawl never waits. When the tables
are old and somebody looks, they are made anew in the background: as often as costs 10 % of a processor at most (`taken_s` tells
their age). What is in the memory of a crawl comes from its process or its workers, every 10 seconds at most.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.operate import Job
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull, UsageError, storage_errors
from anabranch.dedup.files.locks import folder_turn, try_lock
from anabranch.frontier import (
    GATE_STATES,
    QUEUE_STATES,
    BrowsedTable,
    FrontierError,
    PageQuery,
    QueuedUrl,
    StoreFull,
    UnknownQueue,
    browsed_tables,
    first_urls,
    make_tables,
    size_of,
    write_facts,
)

#: The pages import all that they show of queues and gates from here.
__all__ = [
    "GATE_STATES",
    "QUEUE_STATES",
    "ListedGate",
    "ListedQueue",
    "PageQuery",
    "QueueTables",
    "QueuedUrl",
    "RowWithUrls",
    "RowsFound",
]

#: Tables are kept this many times as long as it took to make them, and at least this long.
_KEPT_TIMES, _KEPT_S = 10, 5.0
#: Tables that nobody has looked at for this long are removed.
FORGOTTEN_S = 300.0
#: A crawl is asked for what is in its memory this often at most, and for so many queues and gates.
_LIVE_S, _LIVE_ROWS = 10.0, 500
#: Queues of a job in memory that are shown.
_MOST_IN_MEMORY = 10_000
#: In the console's folder; one folder for each console, which it has locked.
_FOLDER = "queues"

log = structlog.get_logger(__name__)

T = TypeVar("T")


class ListedQueue(NamedTuple):
    """A queue."""

    key: str
    state: str  #: of `QUEUE_STATES`
    urls: int  #: queued, those that wait or are leased included
    waiting: int  #: of them, for a retry
    precedence: int  #: smaller is served first
    spent: int  #: of its budget
    budget: int | None  #: -1 = unlimited; None = the order's
    gates: int  #: hosts of its URLs
    successes: int
    errors: int
    in_flight: int  #: fetches under way
    is_live: bool  #: state and fetches are those of `live_s`; else all is of `taken_s`


class ListedGate(NamedTuple):
    """A gate, which is mostly a host. Times are epoch seconds."""

    key: str
    state: str  #: of `GATE_STATES`
    urls: int
    queues: int
    opens_s: float  #: when the next fetch may begin; infinite = when it is unblocked
    blocked_until_s: float
    rests_until_s: float
    spacing_s: float  #: Crawl-delay
    throttle_s: float  #: between starts since a 429
    troubles: int  #: in a row
    slots: int | None  #: its own number; None = the order's
    in_flight: int
    is_live: bool


R = TypeVar("R")


class RowsFound(NamedTuple, Generic[R]):
    """A page of queues, or of gates."""

    rows: list[R]
    total: int  #: that match
    offset: int  #: of the first one
    taken_s: float  #: epoch seconds of the rows
    live_s: float | None  #: of what the crawl has in memory; None if it is not known
    unknown: str = ""  #: why what a running crawl has in memory is not known, or not all of it


class RowWithUrls(NamedTuple, Generic[R]):
    """A queue or a gate, and its URLs that are fetched next."""

    row: R
    urls: list[QueuedUrl]
    taken_s: float


class QueueTables:
    """The tables of a console's jobs. Raises: NoSuchJob, CrawlerError, FrontierError, each a line for the operator."""

    def __init__(
        self, folder: Path, jobs: ConsoleJobs, *, run_aside: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """`folder` is the console's own. What a console that was killed has left there is removed. Raises: StorageError.

        `run_aside` runs a function outside this process and raises its error; tests run it inline.
        """
        self._jobs = jobs
        self._run_aside = run_aside or _apart
        self._tables: dict[str, _JobTables] = {}
        self._lock = Lock()
        self._ended = Event()
        self._tidying: Thread | None = None
        parent = folder / _FOLDER
        with storage_errors(parent, "folder of the console"):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with folder_turn(parent):
                for left in parent.iterdir():
                    _remove_unlocked(left)
                self._folder = Path(tempfile.mkdtemp(dir=parent))
                self._lock_held = _folder_lock(self._folder)

    def queues(self, name: str, query: PageQuery) -> RowsFound[ListedQueue]:
        """A page of the queues of a job. Raises: PolicyError for an unknown column or state."""
        tables, seen = self._look(name)
        table, known = tables.queues, seen.queues(tables)
        found = table.find(query, time.time(), {row: state for row, (state, _) in known.items()})
        rows = [_queue(table, row, known) for row in found.rows]
        return RowsFound(rows, found.total, found.offset, tables.taken_s, seen.live_s, seen.unknown)

    def gates(self, name: str, query: PageQuery) -> RowsFound[ListedGate]:
        """A page of the gates of a job; none of a job whose queue is in memory. Raises: as `queues`."""
        tables, seen = self._look(name)
        now_s, table, known = time.time(), tables.gates, seen.gates(tables)
        found = table.find(query, now_s, {row: state for row, (state, _, _) in known.items()})
        rows = [_gate(table, row, known, now_s) for row in found.rows]
        return RowsFound(rows, found.total, found.offset, tables.taken_s, seen.live_s, seen.unknown)

    def queue(self, name: str, key: str, urls: int = 20) -> RowWithUrls[ListedQueue]:
        """One queue. Raises: UnknownQueue."""
        tables, seen = self._look(name)
        row = tables.queues.number_of(key)
        if row is None:
            raise UnknownQueue(f"there was no queue {key} when the queue was read; look again later")
        listed = _queue(tables.queues, row, seen.queues(tables))
        return RowWithUrls(listed, self._of(name).first_urls(urls, queue=key), tables.taken_s)

    def gate(self, name: str, key: str, urls: int = 20) -> RowWithUrls[ListedGate]:
        """One gate. Raises: UnknownQueue."""
        tables, seen = self._look(name)
        row = tables.gates.number_of(key)
        if row is None:
            raise UnknownQueue(f"there was no host {key} when the queue was read; look again later")
        listed = _gate(tables.gates, row, seen.gates(tables), time.time())
        return RowWithUrls(listed, self._of(name).first_urls(urls, gate=key), tables.taken_s)

    def renew(self, name: str) -> None:
        """Read the queue of a job now, or wait until a reading that has begun is done."""
        tables = self._of(name)
        tables.renewed(tables.last)

    def close(self) -> None:
        """Remove all tables. Those that are being made are waited for."""
        self._ended.set()
        with self._lock:
            tables, self._tables = [*self._tables.values()], {}
        for one in tables:
            one.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock_held is not None:
            os.close(self._lock_held)
            self._lock_held = None

    def forget(self, before_s: float) -> None:
        """Remove the tables at which nobody has looked since this time (`time.monotonic`)."""
        with self._lock:
            old = [name for name, tables in self._tables.items() if tables.looked_s < before_s]
            tables = [self._tables.pop(name) for name in old]
        for one in tables:
            one.close()

    def _look(self, name: str) -> tuple[_Tables, _Live]:
        tables = self._of(name)
        return tables.current(), tables.live()

    def _of(self, name: str) -> _JobTables:
        try:
            job = self._jobs.job(name)
        except UsageError:  # it is gone
            with self._lock:
                gone = self._tables.pop(name, None)
            if gone is not None:
                gone.close()
            raise
        with self._lock:
            if self._ended.is_set():
                raise CrawlerError("the console ends; look again when it runs")
            if self._tidying is None:
                self._tidying = Thread(target=self._tidy, name="queue tables", daemon=True)
                self._tidying.start()
            old = self._tables.get(name)
            if old is not None and old.job == job:
                return old
            tables = self._tables[name] = _JobTables(job, self._folder, self._run_aside)
        if old is not None:  # the job was divided meanwhile, or there is another one of this name
            old.close()
        return tables

    def _tidy(self) -> None:
        while not self._ended.wait(FORGOTTEN_S / 10):
            self.forget(time.monotonic() - FORGOTTEN_S)


class _Tables:
    """The tables of one moment."""

    def __init__(self, folder: Path, taken_s: float, mark: object, took_s: float) -> None:
        self.folder = folder
        self.taken_s = taken_s
        self.mark = mark  #: of the source, which is unchanged as long as its mark is the same
        self.made_s = time.monotonic()
        self.kept_s = max(_KEPT_TIMES * took_s, _KEPT_S)
        self.queues, self.gates = browsed_tables(folder)

    def keep(self, *, is_same: bool) -> None:
        """Look later. `is_same`: the source is as it was."""
        self.made_s = time.monotonic()
        if is_same:
            self.taken_s = time.time()


class _JobTables:
    """The tables of one job."""

    def __init__(self, job: Job, folder: Path, run_aside: Callable[[Callable[[], None]], None]) -> None:
        self.job = job
        self._folder = folder
        self._run_aside = run_aside
        self._lock = Lock()  # held while tables are replaced, and while their copy of the queue is read
        self._making = Lock()  # held while tables are made
        self._renewal: Thread | None = None
        self._live = _Live(None, {}, {})
        self._asked_s = -math.inf
        self._asked_of: tuple[bool, int | None] = (False, None)  # the process that crawled the job then
        self.last: _Tables | None = None
        self.looked_s = time.monotonic()

    def current(self) -> _Tables:
        """Those that there are; if they are old, new ones are made meanwhile."""
        self.looked_s = time.monotonic()
        tables = self.last
        if tables is None:
            return self.renewed(None)
        with self._lock:
            is_old = time.monotonic() - tables.made_s > tables.kept_s
            if is_old and (self._renewal is None or not self._renewal.is_alive()):
                self._renewal = Thread(target=self._renew, args=(tables,), name="queue tables", daemon=True)
                self._renewal.start()
        return tables

    def renewed(self, old: _Tables | None) -> _Tables:
        """Tables instead of the old ones, made now unless others are there by now. Raises: as `make_tables`."""
        with self._making:
            if self.last is None or self.last is old:
                if old is not None and old.mark is not None and _mark(self.job.store) == old.mark:
                    old.keep(is_same=True)
                    return old
                made = self._made()
                with self._lock:
                    self.last = made
                    if old is not None:
                        shutil.rmtree(old.folder, ignore_errors=True)
            return self.last

    def live(self) -> _Live:
        """Return the queues and gates in the memory of the crawl, never those of an earlier crawl."""
        crawl = self.job.holder()
        with self._lock:
            if crawl != self._asked_of:
                self._live = _Live(None, {}, {})
            elif time.monotonic() - self._asked_s < _LIVE_S:
                return self._live
            self._asked_s, self._asked_of = time.monotonic(), crawl
        found = _live(self.job)
        with self._lock:
            if crawl == self._asked_of:
                self._live = found
        return found

    def first_urls(self, limit: int, *, queue: str | None = None, gate: str | None = None) -> list[QueuedUrl]:
        """Return the first queued URLs, of the same moment as the tables or, from a database, of now."""
        source = self.job.store
        if source is None:
            return []
        with self._lock:
            if self.last is None:
                return []
            return first_urls(source, self.last.folder, limit, queue=queue, gate=gate)

    def wait(self) -> None:
        """Until the new tables are made, if any are."""
        renewal = self._renewal
        if renewal is not None:
            renewal.join()

    def close(self) -> None:
        """Remove them."""
        self.wait()
        with self._making, self._lock:
            tables, self.last = self.last, None
            if tables is not None:
                shutil.rmtree(tables.folder, ignore_errors=True)

    def _renew(self, old: _Tables) -> None:
        try:
            self.renewed(old)
        except Exception as error:  # the page shows how old the rows are
            old.keep(is_same=False)
            if not isinstance(error, CrawlerError | FrontierError | OSError):
                log.exception("the queue cannot be read", folder=str(self._folder))

    def _made(self) -> _Tables:
        with storage_errors(self._folder, "folder of the console"):
            folder = Path(tempfile.mkdtemp(dir=self._folder))
        source, taken_s, began_s = self.job.store, time.time(), time.monotonic()
        try:
            mark = _mark(source)
            with storage_errors(self._folder, "folder of the console"):
                if source is None:
                    self._write_from_memory(folder)
                else:
                    self._run_aside(partial(make_tables, source, folder, is_running=self.job.holder()[0]))
        except (StoreFull, DiskFull) as error:  # of the copy, whatever file it names
            shutil.rmtree(folder, ignore_errors=True)
            size = f" of {size_of(source) >> 20} MiB" if isinstance(source, Path) else ""
            raise DiskFull(
                f"{self._folder}: no room for a copy of the queue{size}; free some, then look again"
            ) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return _Tables(folder, taken_s, mark, time.monotonic() - began_s)

    def _write_from_memory(self, folder: Path) -> None:
        facts = self.job.queues(_MOST_IN_MEMORY)
        if facts is None:
            raise UsageError("the job has no queue yet, or had it in memory only; crawl it first")
        write_facts(folder, facts["queues"])


class _Live:
    """The queues and gates in a crawl's memory, by key."""

    def __init__(
        self,
        live_s: float | None,
        queues: Mapping[str, tuple[str, int]],
        gates: Mapping[str, tuple[float | None, int]],
        unknown: str = "",
    ) -> None:
        self.live_s = live_s
        self.unknown = unknown
        self._queues = queues
        self._gates = gates
        self._rows: tuple[_Tables | None, dict[int, tuple[str, int]], dict[int, tuple[str, float, int]]] = (
            None,
            {},
            {},
        )

    def queues(self, tables: _Tables) -> dict[int, tuple[str, int]]:
        """State and fetches by row."""
        return self._of(tables)[1]

    def gates(self, tables: _Tables) -> dict[int, tuple[str, float, int]]:
        """State, opening and fetches by row."""
        return self._of(tables)[2]

    def _of(
        self, tables: _Tables
    ) -> tuple[_Tables | None, dict[int, tuple[str, int]], dict[int, tuple[str, float, int]]]:
        if self._rows[0] is tables:
            return self._rows
        queues = {
            row: facts for key, facts in self._queues.items() if (row := tables.queues.number_of(key)) is not None
        }
        gates = {}
        for key, (opens_in_s, out) in self._gates.items():
            row = tables.gates.number_of(key)
            if row is None:
                continue
            opens_s = math.inf if opens_in_s is None else (self.live_s or 0.0) + opens_in_s
            state = "in-flight" if out else tables.gates.state(row, time.time())
            if state == "open" and opens_s > time.time():
                state = "resting"
            gates[row] = (state, opens_s, out)
        self._rows = (tables, queues, gates)
        return self._rows


def _live(job: Job) -> _Live:
    """Ask the crawl of a job for the queues and gates in its memory."""
    try:
        facts = job.active(_LIVE_ROWS)
    except (CrawlerError, FrontierError):  # also of a crawl of an older version
        return _Live(None, {}, {}, "the crawl does not answer")
    if facts is None:
        return _Live(None, {}, {})
    silent = ", ".join(facts.get("silent", ()))
    return _Live(
        facts["now_s"],
        {key: (state, out) for key, state, out in facts["queues"]},
        {key: (opens_in_s, out) for key, opens_in_s, out in facts["gates"]},
        f"no answer from {silent}" if silent else "",
    )


def _queue(table: BrowsedTable, row: int, known: Mapping[int, tuple[str, int]]) -> ListedQueue:
    state, in_flight = known.get(row) or (table.state(row, 0.0), 0)
    return ListedQueue(key=table.key(row), state=state, in_flight=in_flight, is_live=row in known, **table.values(row))


def _gate(table: BrowsedTable, row: int, known: Mapping[int, tuple[str, float, int]], now_s: float) -> ListedGate:
    values = {name: value for name, value in table.values(row).items() if name != "held"}
    opens_s = max(values["blocked_until_s"], values["rests_until_s"])
    state, opens_s, in_flight = known.get(row) or (table.state(row, now_s), opens_s, 0)
    return ListedGate(
        key=table.key(row), state=state, opens_s=opens_s, in_flight=in_flight, is_live=row in known, **values
    )


def _mark(source: Path | str | None) -> object:
    """Changes with the file; None of what has no such mark."""
    if not isinstance(source, Path):
        return None
    marks = []
    for file in (source, source.with_name(f"{source.name}-wal")):
        with suppress(FileNotFoundError):
            status = file.stat()
            marks.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return marks


def _folder_lock(folder: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None if a console that runs has it. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _remove_unlocked(folder: Path) -> None:
    held = _folder_lock(folder)
    if held is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


# A separate process, so that the console answers meanwhile


def _apart(do: Callable[[], None]) -> None:
    """Do it in a process of low priority. Raises: what it raises."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_done_apart, args=(do, theirs), daemon=True)
    process.start()
    theirs.close()
    with ours:
        try:
            error: Any = ours.recv()
        except EOFError:
            error = CrawlerError("the process that reads the queue was killed; look again")
    process.join()
    if error is not None:
        raise error


def _done_apart(do: Callable[[], None], answer: Connection) -> None:
    os.nice(10)
    gc.disable()  # it makes millions of tuples, in no cycle
    failure = None
    try:
        do()
    except (FrontierError, OSError) as error:
        failure = error
    with suppress(BrokenPipeError):  # the console was killed
        answer.send(failure)
