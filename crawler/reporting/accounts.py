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
from typing import Protocol

import structlog

from crawler.outcomes.errors import storage_errors
from crawler.reporting.account_file import ACCOUNTS_FILE, AccountsFile
from crawler.reporting.accounting import MAX_TYPES, Additions, Line, Totals, line_of
from crawler.reporting.crawl_log_parsing import NotALogLine, parse_crawl_log_line

log = structlog.get_logger(__name__)

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

    Opening counts what of the log is not counted yet (some 50,000 lines a second). Cost of a line: 12 to 15 µs, in the
    journal's thread; memory: at most `MAX_WAITING` rows and `MAX_KNOWN` hosts, however many there are. Raises: StorageError.
    """

    def __init__(self, state: Path, crawl_log: Path, now_s: Callable[[], float]) -> None:
        self._file = state / ACCOUNTS_FILE
        self._now_s = now_s
        self._started_s = now_s()
        self._types: set[str] = set()  # media types that are counted apart
        self._pending: list[Line] = []  # of the group
        self._pending_bytes = 0
        self._changing = threading.Lock()  # guards the five below; never held while the disk is asked
        self._added = self._none()  # not written yet
        self._added_to = 0  # the log's length with them
        self._committing: tuple[Additions, int] | None = None  # being written, and the log's length with it
        self._committed_to = 0
        self._known: dict[str, Totals] = {}  # complete totals of hosts that were asked for
        self._writing = threading.Lock()  # one transaction at a time
        self._last_commit = monotonic()
        with storage_errors(self._file):
            self._rows = AccountsFile(self._file)
            try:
                self._committed_to = self._added_to = self._rows.read("")[0]
                self._types.update(self._rows.types(MAX_TYPES))
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
                if (read := _read(line)) is not None:
                    self._pending.append(read)
                else:
                    log.error("a line of crawl.log cannot be counted", line=line)

    def keep(self) -> None:
        """The group counts from now on."""
        pending, size = self._pending, self._pending_bytes
        self.take_back()
        with self._changing:
            for line in pending:
                self._added.count(line)
                if line.host in self._known:
                    self._known[line.host].add(line.totals)
            self._added_to += size

    def take_back(self) -> None:
        """The group never was."""
        self._pending, self._pending_bytes = [], 0

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
                self._added, self._committing = self._none(), (added, end)
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

    def _none(self) -> Additions:
        return Additions(types=self._types)

    def _write(self, added: Additions, end: int) -> None:
        self._rows.write(added, end, run=(self._started_s, max(self._now_s(), self._started_s)))

    def _catch_up(self, crawl_log: Path) -> None:
        """Count what of the log is not counted. A log that is shorter than what was counted is another one."""
        size = crawl_log.stat().st_size if crawl_log.exists() else 0
        if size < self._committed_to:
            log.warning("crawl.log is shorter than what was counted of it: it is counted anew", file=str(crawl_log))
            self._rows.forget()
            self._types.clear()
            self._committed_to = self._added_to = 0
        unknown = 0
        for line in _whole_lines(crawl_log, self._committed_to):
            if (read := _read(line)) is None:
                unknown += 1
            else:
                self._added.count(read)
            self._added_to += len(line)
            if self._added.size >= MAX_WAITING:
                self.sync()
        self.sync()
        if unknown:
            log.warning("lines of crawl.log that are none were left out", lines=unknown, file=str(crawl_log))


def _read(line: bytes) -> Line | None:
    """What a line adds; None if it is none."""
    try:
        return line_of(parse_crawl_log_line(line))
    except NotALogLine:
        return None


def _whole_lines(file: Path, start: int) -> Iterator[bytes]:
    """The lines from an offset on, each with its newline; a torn last one is left out."""
    if not file.exists():
        return
    with file.open("rb", buffering=_CHUNK_BYTES) as lines:
        lines.seek(start)
        for line in lines:
            if line.endswith(b"\n"):
                yield line
