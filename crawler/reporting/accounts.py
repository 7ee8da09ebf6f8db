"""The job's totals, across runs and crashes: by host, media type, status, source and processor.

`state/accounts.sqlite` holds them. What is logged is written to `state/accounts.journal` with its group, and added in memory;
every few seconds it is added to the rows, which say up to which place of the journal they count. Whatever a crash took from
memory is counted from the journal when the accounts are opened. So no line is lost, none counts twice, and none is read from
crawl.log, which an operator may move; only accounts of before there was a journal are brought up to date from it, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Protocol

import structlog

from anabranch.crawler.jobs.databases import is_damaged
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.reporting.account_file import ACCOUNTS_FILE, AccountsFile
from anabranch.crawler.reporting.account_journal import JOURNAL_FILE, AccountsDamaged, AccountsJournal, SumDamaged
from anabranch.crawler.reporting.accounting import MAX_TYPES, Additions, Line, Totals, line_of
from anabranch.crawler.reporting.crawl_log_parsing import NotALogLine, parse_crawl_log_line

log = structlog.get_logger(__name__)

#: Rows that wait in memory, at most, and for how many seconds; and hosts whose totals are kept for quotas.
MAX_WAITING = 10_000
COMMIT_S = 5.0
MAX_KNOWN = 10_000
#: A journal of so many bytes is begun anew when the rows count all of it.
MAX_JOURNAL_BYTES = 1 << 20
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

    Opening counts what of the journal is not counted yet (some 50,000 lines a second). Cost of a line: 12 to 15 µs, in the
    journal's thread, and a sync for each group; memory: at most `MAX_WAITING` rows and `MAX_KNOWN` hosts, however many there
    are. Raises: StorageError, AccountsDamaged.
    """

    def __init__(self, state: Path, crawl_log: Path, now_s: Callable[[], float]) -> None:
        self._file = state / ACCOUNTS_FILE
        self._now_s = now_s
        self._started_s = now_s()
        self._types: set[str] = set()  # media types that are counted apart
        self._pending: list[Line] = []  # of the group
        self._changing = threading.Lock()  # guards the five below; never held while the disk is asked
        self._added = self._none()  # not written yet
        self._added_to = 0  # the journal's place with them
        self._committing: tuple[Additions, int] | None = None  # being written, and the journal's place with it
        self._committed_to = 0
        self._known: dict[str, Totals] = {}  # complete totals of hosts that were asked for
        self._writing = threading.Lock()  # one transaction at a time
        self._last_commit = monotonic()
        with storage_errors(self._file):
            self._journal = AccountsJournal(state / JOURNAL_FILE, self._file)
            if self._journal.is_sealed:
                self._journal.begin(self._journal.base)  # whatever changes the rows comes after the seal is broken
            try:
                self._rows = self._opened()
                try:
                    self._types.update(self._rows.types(MAX_TYPES))
                    self._catch_up(crawl_log)
                    self._journal.begin(self._committed_to)
                except BaseException:
                    self._rows.close()
                    raise
            except BaseException:
                self._journal.close()
                raise

    # For the journal

    @property
    def path(self) -> Path:
        """The accounts' file."""
        return self._file

    def append(self, entries: Sequence[Logged]) -> None:
        """Write a group's lines of crawl.log to the journal; first write back what has waited long enough. Raises: OSError."""
        if self._added.size >= MAX_WAITING or monotonic() - self._last_commit >= COMMIT_S:
            self.sync()
            if self._journal.size_bytes >= MAX_JOURNAL_BYTES:  # nobody but this thread adds to it, so all of it counts
                self._journal.begin(self._committed_to)
        lines = [line for entry in entries for line in (entry.crawl_log or b"").splitlines(keepends=True)]
        for line in lines:
            if (read := _read(line)) is not None:
                self._pending.append(read)
            else:
                log.error("a line of crawl.log cannot be counted", line=line)
        self._journal.append(lines)

    def keep(self) -> None:
        """The group counts from now on."""
        pending, self._pending = self._pending, []
        self._journal.keep()
        with self._changing:
            for line in pending:
                self._added.count(line)
                if line.host in self._known:
                    self._known[line.host].add(line.totals)
            self._added_to = self._journal.place

    def take_back(self) -> None:
        """The group never was."""
        self._pending = []
        self._journal.take_back()

    def close(self) -> None:
        """Write back what waits, and seal it; without that it is counted when the job is opened. A second call does nothing."""
        if self._rows.is_closed:
            return
        try:
            self.sync()
            self._rows.fold()
            self._rows.close()
            self._journal.seal(self._committed_to)
        except OSError as error:
            log.warning("the accounts are behind; they catch up when the job goes on", reason=str(error))
        self._rows.close()
        self._journal.close()

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

    def _write(self, added: Additions, place: int) -> None:
        self._rows.write(added, self._lasting, place=place)

    @property
    def _lasting(self) -> tuple[float, float]:
        return self._started_s, max(self._now_s(), self._started_s)

    def _opened(self) -> AccountsFile:
        """The rows; what an orderly end has not sealed is examined. Raises: OSError, AccountsDamaged."""
        rows: AccountsFile | None = None
        try:
            rows = AccountsFile(self._file)
            if self._journal.is_sealed or rows.is_sound():
                return rows
        except OSError as error:
            if not is_damaged(error):
                raise
        if rows is not None:
            rows.close()
        raise AccountsDamaged(self._file, "damaged")

    def _catch_up(self, crawl_log: Path) -> None:
        """Count what of the journal is not counted; if there never was one, what of crawl.log is not."""
        place, covered = self._rows.places()
        if not self._journal.exists:
            if place is None:
                place = self._count_log(crawl_log, covered)
            elif place != covered:
                raise AccountsDamaged(self._file.with_name(JOURNAL_FILE), "missing")
            self._added_to = place
        else:
            self._added_to = place or 0
            for lines, end in self._journal.uncounted(self._added_to):
                for read in filter(None, map(_read, lines)):
                    self._added.count(read)
                self._added_to = end
                if self._added.size >= MAX_WAITING:
                    self.sync()
        self.sync()

    def _count_log(self, crawl_log: Path, covered: int) -> int:
        """Count what of crawl.log is not counted; up to where it is then. Of a log that is shorter all is new: it was moved."""
        size = crawl_log.stat().st_size if crawl_log.exists() else 0
        start = covered if covered <= size else 0
        counted = unknown = 0
        for line in _whole_lines(crawl_log, start):
            start += len(line)
            if (read := _read(line)) is None:
                unknown += 1
                continue
            self._added.count(read)
            counted += 1
            if self._added.size >= MAX_WAITING:
                self._rows.write(self._added, self._lasting, covered=start)
                self._added = self._none()
        self._rows.write(self._added, self._lasting, covered=start)
        self._added = self._none()
        if counted or unknown:
            log.warning("the accounts were brought up to date from crawl.log", lines=counted, left_out=unknown)
        return start


def sum_accounts(state: Path, parts: Sequence[Path], run: tuple[float, float]) -> None:
    """Make a job's accounts the sum of those in other state folders, which nobody writes to; `run` is when the job's run began
    and is now. What a crash took from a part is counted first. Cost: linear in the rows. Raises: StorageError, AccountsDamaged.
    """
    for part in parts:
        Accounts(part, part.parent / "logs" / "crawl.log", lambda: run[1]).close()
    with _summed(state) as rows:
        rows.sum_up([part / ACCOUNTS_FILE for part in parts], run)
        rows.fold()


def check_sum(state: Path) -> None:
    """Raises: StorageError, SumDamaged if `sum_accounts` would."""
    with _summed(state) as rows:
        rows.places()


@contextmanager
def _summed(state: Path) -> Iterator[AccountsFile]:
    file = state / ACCOUNTS_FILE
    with storage_errors(file):
        try:
            rows = AccountsFile(file)
            try:
                yield rows
            finally:
                rows.close()
        except OSError as error:
            if not is_damaged(error):
                raise
            raise SumDamaged(file) from error


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
