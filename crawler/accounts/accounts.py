"""The job's totals, across runs and crashes: by host, media type, status, source and processor.

Each group of the job's journal is recorded in `state/accounts.journal`, with its lines of crawl.log and the ends of all files.
The lines are added up in memory; every few seconds the sums are added to `state/accounts.sqlite`, which has the journal's place
up to which its rows count. At the opening, the lines behind that place are counted. So no line is lost and none counts twice,
even if an operator moves crawl.log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Protocol

import structlog

from anabranch.crawler.accounts.crawl_log import NotALogLine, parse_crawl_log_line
from anabranch.crawler.accounts.database import ACCOUNTS_FILE, AccountsDatabase, CountedRow, rows_added
from anabranch.crawler.accounts.journal import JOURNAL_FILE, AccountsDamaged, AccountsJournal, FileMarks
from anabranch.crawler.accounts.totals import MAX_TYPES, Additions, LineCounts, Totals, counts_of, counts_of_lines
from anabranch.crawler.archive.databases import is_damaged
from anabranch.crawler.outcomes.errors import storage_errors

log = structlog.get_logger(__name__)

#: The most rows that wait in memory, and for how many seconds; the most hosts with cached totals.
MAX_WAITING = 10_000
COMMIT_S = 5.0
MAX_KNOWN = 10_000
#: A journal of so many bytes is begun anew when the rows count all of it.
MAX_JOURNAL_BYTES = 1 << 20
#: How much of crawl.log is read at a time.
_CHUNK_BYTES = 1 << 20


class Logged(Protocol):
    """The part of a journal's entry that the accounts need."""

    @property
    def crawl_log(self) -> bytes | None:
        """The entry's lines of crawl.log with their newlines, mostly one; None if it has none."""


class Counted(NamedTuple):
    """Rows of the accounts."""

    place: int  #: of the journal, up to which they count
    rows: list[CountedRow]


class Accounts:
    """The totals of one job, and the record of its journal: that one's thread calls `append`, then `keep` or `take_back`.

    Opening counts about 50,000 lines a second. Cost of a line: 12 to 15 µs in the journal's thread, and a sync for each group;
    memory: at most `MAX_WAITING` rows and `MAX_KNOWN` hosts. Raises: StorageError, AccountsDamaged.
    """

    def __init__(self, state: Path, crawl_log: Path, now_s: Callable[[], float]) -> None:
        self.path = state / ACCOUNTS_FILE
        self._now_s = now_s
        self._started_s = now_s()
        self._types: set[str] = set()  # media types that are counted separately
        self._pending: list[LineCounts] = []  # of the group
        self._changing = threading.Lock()  # guards the five below; never held during I/O
        self._added = self._no_additions()  # not written yet
        self._added_to = 0  # the journal's place with them
        self._committing: tuple[Additions, int] | None = None  # being written, and the journal's place with it
        self._committed_to = 0
        self._known: dict[str, Totals] = {}  # complete totals of hosts, least recently asked for first
        self._writing = threading.Lock()  # one transaction at a time
        self._last_commit = monotonic()
        self._changed: Additions | None = None  # since `changed` was called; None: it never was
        self._uncarried: list[LineCounts] | None = None  # since `uncarried` was last asked; None: it never will be
        self._carrying: Counted | None = None  # what it returned, until `carried`
        with storage_errors(self.path), ExitStack() as opened:
            self._journal = AccountsJournal(state / JOURNAL_FILE, self.path)
            opened.callback(self._journal.close)
            if self._journal.is_sealed:
                self._journal.begin(self._journal.base)  # the seal must be broken before the rows change
            self._database = self._opened()
            opened.callback(self._database.close)
            self._types.update(self._database.types(MAX_TYPES))
            self._catch_up(crawl_log)
            self._journal.begin(self._committed_to)
            opened.pop_all()

    def _opened(self) -> AccountsDatabase:
        """The database, checked unless an orderly end has sealed it. Raises: OSError, AccountsDamaged."""
        database: AccountsDatabase | None = None
        try:
            database = AccountsDatabase(self.path)
            if self._journal.is_sealed or database.is_consistent():
                return database
        except OSError as error:
            if not is_damaged(error):
                raise
        if database is not None:
            database.close()
        raise AccountsDamaged(self.path, "damaged")

    def _catch_up(self, crawl_log: Path) -> None:
        """Count the part of the journal that the rows do not count; if there never was a journal, that of crawl.log."""
        place, covered = self._database.places()
        if not self._journal.exists:
            if place is None:
                place = self._count_log(crawl_log, covered)
            elif place != covered:
                raise AccountsDamaged(self.path.with_name(JOURNAL_FILE), "missing")
            self._added_to = place
        else:
            self._added_to = place or 0
            for lines, end in self._journal.groups_behind(self._added_to):
                for counts in counts_of_lines(lines)[0]:
                    self._added.count(counts)
                self._added_to = end
                if self._added.size >= MAX_WAITING:
                    self._sync_recovered()
        self._sync_recovered()

    def _sync_recovered(self) -> None:
        """Commit what a killed run has added; it lasted at least until its last success, which its row does not have."""
        self._database.extend_run(self._started_s, self._added.total.last_success_s or 0.0)
        self.sync()

    def _count_log(self, crawl_log: Path, covered: int) -> int:
        """Count crawl.log from `covered` on; return up to where it is counted. A shorter log is another one: all is new."""
        size = crawl_log.stat().st_size if crawl_log.exists() else 0
        place = covered if covered <= size else 0
        counted = unknown = 0
        for line in _whole_lines(crawl_log, place):
            place += len(line)
            if (counts := _counts_of_line(line)) is None:
                unknown += 1
                continue
            self._added.count(counts)
            counted += 1
            if self._added.size >= MAX_WAITING:
                self._database.write(self._added, self._run_times, covered=place)
                self._added = self._no_additions()
        self._database.write(self._added, self._run_times, covered=place)
        self._added = self._no_additions()
        if counted or unknown:
            log.warning("the accounts were brought up to date from crawl.log", lines=counted, left_out=unknown)
        return place

    # The record of the job's journal

    @property
    def files(self) -> FileMarks | None:
        """The ends of the job's files behind the last group; None if they were never recorded."""
        return self._journal.files

    def append(self, entries: Sequence[Logged], files: FileMarks | None = None) -> None:
        """Record a group: its lines, and the files with it (None: as before). Raises: OSError.

        Additions that have waited long enough are committed first.
        """
        if self._added.size >= MAX_WAITING or monotonic() - self._last_commit >= COMMIT_S:
            self.sync()
            if self._journal.size_bytes >= MAX_JOURNAL_BYTES:  # only this thread adds to it, so all of it counts
                self._journal.begin(self._committed_to)
        lines = [line for entry in entries for line in (entry.crawl_log or b"").splitlines(keepends=True)]
        self._pending, broken = counts_of_lines(lines)
        for line in broken:
            log.error("a line of crawl.log cannot be counted", line=line)
        self._journal.append(lines, files)

    def keep(self) -> None:
        """Count the group."""
        pending, self._pending = self._pending, []
        self._journal.keep()
        with self._changing:
            for counts in pending:
                self._added.count(counts)
                if counts.host in self._known:
                    self._known[counts.host].add(counts.totals)
            self._added_to = self._journal.place
            if self._uncarried is not None:
                self._uncarried += pending

    def take_back(self) -> None:
        """Drop the group. Raises: OSError; then it may count after all."""
        self._pending = []
        self._journal.take_back()

    def begin(self, files: FileMarks) -> None:
        """Record the files before the first group: what is behind these ends counts only with a group. Raises: OSError."""
        self.sync()
        self._journal.remember(files)
        self._journal.begin(self._committed_to)

    def settle(self, files: FileMarks) -> None:
        """Remember for `close` that all files of the job were closed in order, but for these."""
        self._journal.remember(files)

    def close(self) -> None:
        """Commit all additions and seal the database; if that fails, the next opening counts them. Idempotent."""
        if self._database.is_closed:
            return
        try:
            self.sync()
            self._database.checkpoint()
            self._database.close()
            self._journal.seal(self._committed_to)
        except OSError as error:
            log.warning("the accounts are behind; they catch up when the job goes on", reason=str(error))
        self._database.close()
        self._journal.close()

    # From any thread

    def sync(self) -> None:
        """Commit all additions, for readers in other processes. Raises: OSError."""
        with self._writing:
            self._commit()

    def _commit(self) -> None:
        with self._changing:
            added, end = self._added, self._added_to
            self._added, self._committing = self._no_additions(), (added, end)
        try:
            self._database.write(added, self._run_times, place=end)
        except BaseException:
            with self._changing:
                added.merge(self._added)
                self._added, self._committing = added, None
            raise
        with self._changing:
            self._committing, self._committed_to = None, end
            if self._changed is not None:
                self._changed.merge(added)
        self._last_commit = monotonic()

    def changed(self, *, all_rows: bool = False) -> Counted:
        """The rows that have changed since the last call, as they are now; all of them at the first one, or if asked.

        Raises: OSError.
        """
        with self._writing:  # nothing is added to the rows before they are read
            self._commit()
            with self._changing:
                changed, self._changed, place = self._changed, self._no_additions(), self._committed_to
            return Counted(place, self._database.rows_of(None if all_rows else changed))

    def carry(self) -> None:
        """From now on collect what is counted for `uncarried`. Called before the first visit."""
        self._uncarried = []

    def uncarried(self) -> Counted | None:
        """Return what was added since the last call, as rows, or None. Until `carried` is called it returns the same.

        For one thread, any. Cost: 10 µs a line.
        """
        if self._carrying is None and self._uncarried:
            with self._changing:
                lines, self._uncarried, place = self._uncarried, [], self._added_to
            added = self._no_additions()
            for counts in lines:
                added.count(counts)
            self._carrying = Counted(place, rows_added(added))
        return self._carrying

    def carried(self) -> None:
        """Forget what `uncarried` returned: its rows are durable elsewhere."""
        self._carrying = None

    def of_host(self, host: str) -> Totals:
        """The totals of a host until now. O(1), mostly from memory. For one thread only. Raises: OSError."""
        with self._changing:
            known = self._known.pop(host, None)
            if known is not None:
                self._known[host] = known
                return replace(known)
        while (totals := self._complete(host, *self._database.totals_of_host(host))) is None:
            pass  # a commit came in between; there is one in some seconds
        return totals

    def _complete(self, host: str, covered: int, totals: Totals) -> Totals | None:
        """Add the additions that are not in the row that was read; None if the row has changed since."""
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
            return replace(totals)

    def _no_additions(self) -> Additions:
        return Additions(types=self._types)

    @property
    def _run_times(self) -> tuple[float, float]:
        """When this run began, and now."""
        return self._started_s, max(self._now_s(), self._started_s)


def _counts_of_line(line: bytes) -> LineCounts | None:
    """Return the counts that a line adds; None if it is not a line of crawl.log."""
    try:
        return counts_of(parse_crawl_log_line(line))
    except NotALogLine:
        return None


def _whole_lines(file: Path, start: int) -> Iterator[bytes]:
    """The lines from an offset on, each with its newline, without a torn last one."""
    if not file.exists():
        return
    with file.open("rb", buffering=_CHUNK_BYTES) as lines:
        lines.seek(start)
        for line in lines:
            if line.endswith(b"\n"):
                yield line
