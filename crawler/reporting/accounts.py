"""The job's totals, across runs and crashes: by host, media type, status, source and processor.

`state/accounts.sqlite` holds them, and up to which byte of `crawl.log` they count. What is written to the log is added in
memory and written back every few seconds; whatever a crash took is counted again from the log when the accounts are opened.
So no line is lost and none counts twice, and a job whose accounts were removed gets them back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import structlog
from sqlalchemy import Table, bindparam, delete, select

from crawler.outcomes.errors import storage_errors
from crawler.reporting import account_tables as tables
from crawler.reporting.account_tables import adding, as_system_errors, engine_for, is_damaged, setting
from crawler.reporting.accounting import SUMS, Additions, Totals
from crawler.reporting.crawl_log_parsing import NotALogLine, parse_crawl_log_line

log = structlog.get_logger(__name__)

#: The file's name in the state folder.
ACCOUNTS_FILE = "accounts.sqlite"
#: Rows that wait in memory, at most, and for how many seconds; and hosts whose totals are kept for quotas.
MAX_WAITING = 10_000
COMMIT_S = 5.0
MAX_KNOWN = 10_000
#: How much of crawl.log is read at a time.
_CHUNK_BYTES = 1 << 20


class Logged(Protocol):
    """What a journal writes of one visit, as far as the accounts care."""

    @property
    def crawl_log(self) -> bytes | None:
        """Its lines of crawl.log with their newlines, mostly one; None if there is none."""


class Sink(Protocol):
    """What a journal's thread feeds with each group of entries, beside its files: `append`, then `keep` or `take_back`."""

    @property
    def path(self) -> Path:
        """The file that a failure is about."""

    def append(self, entries: Sequence[Logged], /) -> None:
        """Take a group. Raises: OSError; then the group does not count."""

    def keep(self) -> None:
        """The group is durable: it counts."""

    def take_back(self) -> None:
        """The group does not count."""

    def close(self) -> None:
        """Nothing more comes."""


class Accounts:
    """The totals of one job; a `Sink` for what a journal writes.

    Opening counts what of the log is not counted yet (some 50,000 lines a second). Cost of a line: 20 µs, in the journal's
    thread; memory: at most `MAX_WAITING` rows and `MAX_KNOWN` hosts, however many there are. Raises: StorageError.
    """

    def __init__(self, state: Path, crawl_log: Path, now_s: Callable[[], float]) -> None:
        self._file = state / ACCOUNTS_FILE
        self._now_s = now_s
        self._started_s = now_s()
        self._pending = Additions()
        self._pending_bytes = 0
        self._changing = threading.Lock()  # guards the five below; never held while the disk is asked
        self._added = Additions()  # not written yet
        self._added_to = 0  # the log's length with them
        self._committing: tuple[Additions, int] | None = None  # being written, and the log's length with it
        self._committed_to = 0
        self._known: dict[str, Totals] = {}  # complete totals of hosts that were asked for
        self._writing = threading.Lock()  # one transaction at a time
        self._last_commit = monotonic()
        with storage_errors(self._file):
            self._rows = _File(self._file)
            try:
                self._committed_to = self._added_to = self._rows.read("")[0]
                self._catch_up(crawl_log)
            except BaseException:
                self._rows.close()
                raise

    # For the journal

    @property
    def path(self) -> Path:
        """The accounts' file."""
        return self._file

    def append(self, entries: Sequence[Logged]) -> None:
        """Take a group's lines of crawl.log; first write back what has waited long enough. Raises: OSError."""
        if self._added.size >= MAX_WAITING or monotonic() - self._last_commit >= COMMIT_S:
            self.sync()
        for entry in entries:
            for line in (entry.crawl_log or b"").splitlines(keepends=True):
                self._pending_bytes += len(line)
                if not _count(line, self._pending):
                    log.error("a line of crawl.log cannot be counted", line=line)

    def keep(self) -> None:
        """The group counts from now on."""
        pending, size = self._pending, self._pending_bytes
        self.take_back()
        with self._changing:
            self._added.merge(pending)
            self._added_to += size
            for host, totals in pending.hosts.items():
                if host in self._known:
                    self._known[host].add(totals)

    def take_back(self) -> None:
        """The group never was."""
        self._pending, self._pending_bytes = Additions(), 0

    def close(self) -> None:
        """Write back what waits; what cannot be written is counted again when the job is opened. A second call does nothing."""
        if self._rows.is_closed:
            return
        try:
            self.sync()
            self._rows.fold()
        except OSError as error:
            log.warning("the accounts are behind; they are counted again when the job goes on", reason=str(error))
        self._rows.close()

    # For everybody

    def sync(self) -> None:
        """Write back all that counts: what other processes read is up to date then. Raises: OSError."""
        with self._writing:
            with self._changing:
                added, end = self._added, self._added_to
                self._added, self._committing = Additions(), (added, end)
            try:
                self._write(added, end)
            except BaseException:
                with self._changing:
                    added.merge(self._added)
                    self._added, self._committing = added, None
                raise
            with self._changing:
                self._committing, self._committed_to = None, end
            self._last_commit = monotonic()

    def of_host(self, host: str) -> Totals:
        """The totals of a host until now. O(1): a look into memory, or for one that was not asked for lately, one row.

        For one thread, such as the event loop's. Raises: OSError.
        """
        with self._changing:
            known = self._known.pop(host, None)
            if known is not None:
                self._known[host] = known  # the one asked for last is the last to be forgotten
                return known.copy()
        while (totals := self._complete(host, *self._rows.read(host))) is None:
            pass  # a commit came in between; there is one in some seconds
        return totals

    @property
    def covered_bytes(self) -> int:
        """How much of crawl.log counts, written back or not."""
        return self._added_to

    def _complete(self, host: str, covered: int, totals: Totals) -> Totals | None:
        """What was read of a host with what is not written; None if something was written after it was read."""
        with self._changing:
            if covered < self._committed_to:
                return None
            waiting = [self._added]
            if self._committing is not None and covered < self._committing[1]:
                waiting.append(self._committing[0])
            for additions in waiting:
                if host in additions.hosts:
                    totals.add(additions.hosts[host])
            self._known[host] = totals
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
            return totals.copy()

    def _write(self, added: Additions, end: int) -> None:
        self._rows.write(added, end, run=(self._started_s, max(self._now_s(), self._started_s)))

    def _catch_up(self, crawl_log: Path) -> None:
        """Count what of the log is not counted. A log that is shorter than what was counted is another one."""
        size = crawl_log.stat().st_size if crawl_log.exists() else 0
        if size < self._committed_to:
            log.warning("crawl.log is shorter than what was counted of it: it is counted anew", file=str(crawl_log))
            self._rows.forget()
            self._committed_to = self._added_to = 0
        unknown = 0
        for line in _whole_lines(crawl_log, self._committed_to):
            unknown += not _count(line, self._added)
            self._added_to += len(line)
            if self._added.size >= MAX_WAITING:
                self.sync()
        self.sync()
        if unknown:
            log.warning("lines of crawl.log that are none were left out", lines=unknown, file=str(crawl_log))


class _File:
    """The rows: one connection writes them, another one reads. Raises: OSError, as for every file."""

    def __init__(self, path: Path) -> None:
        """Connect; a file that is broken is made anew, since all of it stands in the log."""
        self._path = path
        try:
            self._connect()
        except OSError as error:
            if not is_damaged(error):
                raise
            log.warning("the accounts are damaged; they are counted again from crawl.log", file=str(path))
            for part in (path, *(Path(f"{path}{ending}") for ending in ("-wal", "-shm"))):
                part.unlink(missing_ok=True)
            self._connect()

    def read(self, host: str) -> tuple[int, Totals]:
        """How much of the log the rows count, and a host's row, both of one moment."""
        with as_system_errors(self._path):
            row = self._reader.execute(_ROW_OF_HOST, {"asked": host}).one_or_none()
            self._reader.rollback()
        if row is None:
            return 0, Totals()
        return row[0], totals_of(row[1:]) if row[1] is not None else Totals()

    def write(self, added: Additions, end: int, run: tuple[float, float]) -> None:
        """Add to the rows, in one transaction: they count the log up to `end` then; `run` is when this one began and is now."""
        with as_system_errors(self._path), self._writer.begin():
            for table, rows in _rows(added):
                if rows:
                    self._writer.execute(_ADD[table.name], rows)
            self._writer.execute(_SET_RUN, {"started_s": run[0], "until_s": run[1]})
            self._writer.execute(_SET_COVERED, {"id": 0, "bytes": end})

    def forget(self) -> None:
        """No rows but those of the runs."""
        with as_system_errors(self._path), self._writer.begin():
            for table in tables.METADATA.sorted_tables:
                if table is not tables.RUN:
                    self._writer.execute(delete(table))

    def fold(self) -> None:
        """Leave one file, without a log beside it."""
        with as_system_errors(self._path):
            self._writer.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
            self._writer.commit()

    def close(self) -> None:
        """Let go of the file. A second call does nothing."""
        self._writer.close()
        self._reader.close()

    @property
    def is_closed(self) -> bool:
        """Nothing can be read or written any more."""
        return self._writer.closed

    def _connect(self) -> None:
        with as_system_errors(self._path):
            self._writer = engine_for(self._path).connect()
            try:
                with self._writer.begin():
                    tables.METADATA.create_all(self._writer)
                self._reader = engine_for(self._path, is_reader=True).connect()
            except BaseException:
                self._writer.close()
                raise


def totals_of(row: Sequence[float | None]) -> Totals:
    """The columns of a row of `host` or `total`, behind its key."""
    return Totals(*row)  # type: ignore[arg-type]


def _count(line: bytes, additions: Additions) -> bool:
    """Count a line; False if it is none."""
    try:
        additions.count(parse_crawl_log_line(line))
    except NotALogLine:
        return False
    return True


def _whole_lines(file: Path, start: int) -> Iterator[bytes]:
    """The lines from an offset on, each with its newline; a torn last one is left out."""
    if not file.exists():
        return
    with file.open("rb", buffering=_CHUNK_BYTES) as lines:
        lines.seek(start)
        for line in lines:
            if line.endswith(b"\n"):
                yield line


def _columns(totals: Totals) -> dict[str, float | None]:
    return {name: getattr(totals, name) for name in (*SUMS, tables.FIRST, tables.LAST)}


def _rows(added: Additions) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    yield tables.HOST, [{"host": host, **_columns(totals)} for host, totals in added.hosts.items()]
    yield tables.TOTAL, [{"id": 0, **_columns(added.total)}]
    mimes = added.mime_urls.items()
    yield tables.MIME, [{"mime": mime, "urls": urls, "bytes": added.mime_bytes[mime]} for mime, urls in mimes]
    yield tables.STATUS, [{"status": status, "urls": urls} for status, urls in added.statuses.items()]
    yield tables.SOURCE, [{"source": tag, "host": host, "urls": urls} for (tag, host), urls in added.sources.items()]
    numbers = added.processors.items()
    yield tables.PROCESSOR, [{"processor": of, "counter": what, "number": number} for (of, what), number in numbers]


_ADD = {
    table.name: adding(table)
    for table in (tables.HOST, tables.TOTAL, tables.MIME, tables.STATUS, tables.SOURCE, tables.PROCESSOR)
}
_SET_RUN = setting(tables.RUN)
_SET_COVERED = setting(tables.COVERED)
_ROW_OF_HOST = select(
    tables.COVERED.c.bytes, *(column for column in tables.HOST.columns if not column.primary_key)
).select_from(tables.COVERED.outerjoin(tables.HOST, tables.HOST.c.host == bindparam("asked")))
