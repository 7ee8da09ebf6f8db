"""The journal: makes durable what visits leave behind, with one sync per file for many visits (group commit).

Writers add their entries and wait. A thread takes all that waits and gives the group to each sink in turn (WARC files first,
then the logs), which writes and syncs once; then it wakes the writers. Meanwhile the next group gathers. After a large group
the thread begins the next one when half of the visits at work wait for it, or after `GROUP_S` seconds: each group costs several
syncs and a wake-up of the loop.

A group counts in all sinks or in none, whatever fails and whenever the process is killed. It counts once its record is written,
which comes last and is one line of the accounts' journal: the group's lines of crawl.log, and for each file its length, its
inode and a digest of the 64 bytes before its end. `roll_back`, at the next opening, cuts each file to the last record, if those
bytes are still there. A file that was moved, shortened, compressed or replaced since is left as it is, and named in a warning.
What follows a record waits for it: a WARC file gets its final name and is uploaded, and the payloads are remembered, only then.
If an operator moves a log of a running crawl, the new ends are recorded before anything is written to the new file.

A group that a full or read-only disk refuses is taken back and tried again for some time, as the store does with its
transactions. It is tried again only if it is certain that it was not recorded.

`open_journal` opens the sinks that an order asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple

import structlog

from anabranch.crawler.accounts.crawl_log import with_place
from anabranch.crawler.archive.compression import compression_of
from anabranch.crawler.archive.files import WarcFiles, WarcOptions, finish_left_over
from anabranch.crawler.archive.history import FetchHistory
from anabranch.crawler.archive.sink import GroupRecord, JournalEntry, JournalSink
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.state import PAYLOADS
from anabranch.crawler.order.order import CrawlOrder, changed_keys
from anabranch.crawler.order.sections import VERSION, WriteSection
from anabranch.crawler.outcomes.errors import ROOM_MAY_COME, JournalFailed, exhausted, journal_error, storage_errors
from anabranch.dedup.files.durable import AppendOnlyFile, FileMark, cut_back
from anabranch.frontier import RETRY_S, Patience
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.errors import caused_by

log = structlog.get_logger(__name__)

#: After a group of so many entries the next one gathers for so long, from the beginning of the last.
LARGE_GROUP = 8
GROUP_S = 0.05

#: The files of lines in a job's folder.
_LOGS = ("logs/crawl.log", "logs/errors.jsonl", "pages.jsonl", "links.jsonl")
#: The field of an entry that a file takes.
Lines = Literal["crawl_log", "pages", "links", "errors"]


class LineFile(JournalSink):
    """A sink for lines: an append-only file. An operator may move, remove or cut the file at any time.

    Opening cuts a torn last line. Raises: StorageError if the file cannot be opened.
    """

    def __init__(self, path: Path, lines: Lines) -> None:
        with storage_errors(path):
            self._file: AppendOnlyFile | None = AppendOnlyFile(path)
        self._path, self._line = path, attrgetter(lines)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def follow(self) -> bool:
        """Go on in the file that has the name now; whether it is another one, or was cut. Cost: one stat."""
        return self._open.follow()

    def marks(self) -> Mapping[str, FileMark]:
        """Return the mark of the file by its name; empty after `close`."""
        return {} if self._file is None else {self._path.name: self._file.mark()}

    def append(self, entries: Sequence[JournalEntry]) -> None:
        """Write the lines, with one sync; without lines nothing."""
        self._open.append(b"".join(filter(None, map(self._line, entries))))

    def keep(self) -> None:
        """The lines count."""
        self._open.keep()

    def take_back(self) -> None:
        """Cut the lines, as far as the disk allows."""
        self._open.take_back()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _open(self) -> AppendOnlyFile:
        assert self._file is not None
        return self._file


class _Writer(NamedTuple):
    """A writer and its entry."""

    entry: JournalEntry
    written: asyncio.Future[JournalEntry] | None  #: None: it does not wait


class Journal:
    """Sinks that are written together, from one event loop, and closed with the journal. One sync per sink and group.

    Without a `record` a kill in the middle of a group leaves it in some of the sinks.
    """

    def __init__(
        self,
        *sinks: JournalSink,
        record: GroupRecord | None = None,
        retry_s: float = 0.0,
        at_work: Callable[[], int] | None = None,
    ) -> None:
        """A group that a full or read-only disk refuses is tried again for `retry_s` seconds.

        `at_work`: the number of visits under way, those that wait for anything else among them (any thread); None: unknown.
        """
        self.trouble = ""  #: what the journal waits for; empty if it can write
        self._patience = Patience(retry_s)
        self._has_moved = False  # a file goes on under its name, and the new end is not recorded yet
        self._is_taken_back = False  # the last group that failed counts in no file
        self._sinks = sinks
        self._record = record
        self._at_work = at_work
        self._gathered: list[_Writer] = []  # in this turn of the loop, which alone knows them
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()  # guards the three below
        self._waiting: list[_Writer] = []
        self._failed: JournalFailed | None = None
        self._is_closing = False
        self._broken: Exception | None = None  # what a sink raised that could not be closed
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    async def write(self, entry: JournalEntry) -> JournalEntry:
        """Give the entry to each sink; return it as written, when all of it is durable. Its contents must not change meanwhile.

        The entry of a cancelled writer is written all the same; a writer with an exchange waits for that, since its body is
        read meanwhile. Raises: JournalFailed after a failed write or on a closed journal, ValueError for a torn line.
        """
        if not entry.is_fit:
            raise ValueError("a line must end with a newline")
        if self._failed is not None:
            raise _again(self._failed)
        if self._is_closing:
            raise JournalFailed("the journal is closed")
        written: asyncio.Future[JournalEntry] = asyncio.get_running_loop().create_future()
        self._gather(_Writer(entry, written))
        if entry.exchange is None:
            return await written
        return await to_the_end(_until(written))  # its body is being read: a writer that continued would close it

    def follow(self) -> None:
        """Have the files of lines follow their names (log rotation) with nothing to write. Called from the loop."""
        if self._failed is None and not self._is_closing:
            self._gather(_Writer(JournalEntry(), None))

    def limit_retries(self) -> None:
        """Try what fails for as long as the store does at most from now on (any thread)."""
        self._patience.limit(RETRY_S)

    async def close(self) -> None:
        """Write what waits, then close the sinks. A second call does nothing. Raises: an error of closing a sink."""
        self._hand_over()
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._patience.limit(0.0)
        self._patience.hurry()
        await asyncio.to_thread(self._thread.join)
        broken, self._broken = self._broken, None
        if broken is not None:
            raise broken

    def _gather(self, writer: _Writer) -> None:
        if not self._gathered:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._hand_over)
        self._gathered.append(writer)

    def _hand_over(self) -> None:
        """Give the thread what was gathered; the first entry wakes it."""
        gathered, self._gathered = self._gathered, []
        with self._changed:
            is_first = not self._waiting
            self._waiting += gathered
            if gathered and (is_first or self._is_crowd):
                self._changed.notify()

    def _work(self) -> None:
        """The thread: group after group until the journal is closed and nothing waits."""
        may_begin = 0.0
        while group := self._next_group(may_begin):
            may_begin = monotonic() + GROUP_S if len(group) >= LARGE_GROUP else 0.0
            try:
                entries, failed = self._append_patiently(group) if self._failed is None else ((), self._failed)
            except Exception as error:  # noqa: BLE001 - without the thread the writers would wait forever
                entries, failed = (), _failure(error, self._sinks[0].path)
            with self._changed:
                self._failed = failed
            # A closed loop has no writers that could wait.
            with contextlib.suppress(RuntimeError):
                assert self._loop is not None
                self._loop.call_soon_threadsafe(_let_go, group, entries, failed)
        self._close_sinks()

    def _close_sinks(self) -> None:
        """The record last: it remembers which files were not closed in order."""
        closing = [(sink.close, sink.path) for sink in self._sinks]
        if self._record is not None:
            closing += [(self._settle, self._record.path)] if self._failed is None else []
            closing.append((self._record.close, self._record.path))
        for close, path in closing:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - it is raised again, by `close`
                failed = caused_by(journal_error(error, path), error) if isinstance(error, OSError) else error
                self._broken = self._broken or failed  # what fails after it may fail because of it

    def _settle(self) -> None:
        if self._record is not None and self._broken is None:
            self._record.settle(self._marks())

    def _marks(self) -> dict[str, FileMark]:
        """The ends of all files, with the group that was appended."""
        return {name: mark for sink in self._sinks for name, mark in sink.marks().items()}

    def _append_patiently(self, group: Sequence[_Writer]) -> tuple[Sequence[JournalEntry], JournalFailed | None]:
        """Append a group, again and again while the disk may take it later. The first failure is the one that counts."""
        entries, failed = self._append(group)
        first = failed
        while failed is not None and self._may_try_again(failed):
            entries, failed = self._append(group)
        if self.trouble:
            self.trouble = ""
            if failed is None:
                log.warning("the crawl goes on")
        self._patience.renew()
        return entries, first if failed is not None else None  # next time another file may be the one that fails

    def _may_try_again(self, failed: JournalFailed) -> bool:
        """Wait for the next try; False if the time is up, if no try can help, or if the group may count already."""
        if not self._is_taken_back or getattr(failed.__cause__, "errno", None) not in ROOM_MAY_COME:
            return False
        reason = failed.reason or str(failed)
        if reason not in self.trouble:
            self.trouble = f"waits for the disk: {reason}"
            log.warning("the crawl waits", waits_for=reason)
        return self._patience.wait()

    def _next_group(self, may_begin: float) -> list[_Writer]:
        """All waiting entries, once there are some and the time has come; empty when the journal is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closing)
            while not (self._is_closing or self._is_crowd) and (early_s := may_begin - monotonic()) > 0:
                self._changed.wait(early_s)  # a crowd or `close` wakes it earlier
            group, self._waiting = self._waiting, []
            return group

    @property
    def _is_crowd(self) -> bool:
        """Half of the visits at work wait."""
        return self._at_work is not None and 2 * len(self._waiting) >= self._at_work()

    def _append(self, group: Sequence[_Writer]) -> tuple[Sequence[JournalEntry], JournalFailed | None]:
        """Make a group durable in all sinks, or take it back as far as the disk allows; its entries as written, or why not."""
        entries: Sequence[JournalEntry] = [writer.entry for writer in group]
        writing: JournalSink | GroupRecord = self._sinks[0]
        self._is_taken_back = False
        try:
            for writing in self._sinks:  # an operator may have moved several: each sink is asked
                self._has_moved |= writing.follow()
            if self._has_moved and self._record is not None:
                writing = self._record
                self._record.append((), self._marks())
                self._record.keep()
            self._has_moved = False
            for writing in self._sinks:
                entries = writing.append(entries) or entries
            if self._record is not None:
                writing = self._record
                self._record.append(entries, self._marks())
        except Exception as error:  # noqa: BLE001 - it is raised by the writers
            failed = _failure(error, writing.path, is_foreseeable=True)
            self._take_back(is_recorded=writing is self._record)
            return (), failed
        kept: list[JournalSink | GroupRecord] = [*self._sinks]
        if self._record is not None:
            kept.insert(0, self._record)
        for sink in kept:
            try:
                sink.keep()
            except Exception as error:  # noqa: BLE001 - it is raised by the writers
                return (), _failure(error, sink.path)
        return entries, None

    def _take_back(self, *, is_recorded: bool) -> None:
        """Take a failed group back; a defect of one sink must not keep the others from it.

        A record that cannot be taken back may count after all. Then the sinks keep the group, and the next opening decides.
        """
        if is_recorded and self._record is not None:
            try:
                self._record.take_back()
            except Exception as error:  # noqa: BLE001 - the writers get the first failure
                _log_rest(error, self._record.path, "whether the last group counts is decided by the next run")
                return
        self._is_taken_back = True
        for sink in self._sinks:
            try:
                sink.take_back()
            except Exception as error:  # noqa: BLE001 - the writers get the first failure
                self._is_taken_back = False
                _log_rest(error, sink.path, "a file of the job keeps a part of a failed group")


def _log_rest(error: Exception, path: Path, what: str) -> None:
    """Log what is left of a group that failed, in one line if it is the disk; anything else is a defect."""
    if isinstance(error, OSError):
        log.warning(what, path=str(path), error=str(error))
    else:
        log.error(what, path=str(path), exc_info=error)


def _failure(error: Exception, path: Path, *, is_foreseeable: bool = False) -> JournalFailed:
    """The failure of the journal for an error of a sink. Errors that a sink must not raise are logged, too."""
    if is_foreseeable and isinstance(error, OSError):
        failed = journal_error(error, path)
    else:
        advice = exhausted(error)  # a lack of memory is no defect of ours
        if advice is None:
            log.error("a file of the job cannot be written, or not counted", path=str(path), exc_info=error)
        failed = JournalFailed(f"{path}: {advice or f'{type(error).__name__}: {error}'}")
    failed.__cause__ = error
    return failed


def _again(failed: JournalFailed) -> JournalFailed:
    """A copy of the failure for another writer: an exception object is raised only once."""
    error = type(failed)(*failed.args)
    error.__cause__ = failed.__cause__
    return error


async def _until(written: asyncio.Future[JournalEntry]) -> JournalEntry:
    return await written


def _let_go(group: Sequence[_Writer], entries: Sequence[JournalEntry], failed: JournalFailed | None) -> None:
    """In the event loop: wake the writers of a group that were not cancelled."""
    for place, writer in enumerate(group):
        if writer.written is None or writer.written.done():
            continue
        if failed is None:
            writer.written.set_result(entries[place])
        else:
            writer.written.set_exception(_again(failed))


@dataclass(frozen=True, slots=True)
class JournalFiles:
    """The files that visits are written to. Closing the journal closes all of them."""

    journal: Journal
    payloads: FetchHistory | None  #: None if no WARC files are written


def open_journal(
    job: JobFolder,
    section: WriteSection,
    facts: Mapping[str, str],
    clock: Callable[[], float],
    record: GroupRecord | None = None,
    *,
    retry_s: float | None = None,
    at_work: Callable[[], int] | None = None,
) -> JournalFiles:
    """Open the job's files: WARC first, then the logs, then the memory of payloads (blocks). The record is open already.

    A group of a killed run that was not recorded is cut off (`roll_back`). `retry_s`: how long a full disk is waited for, by
    default as long as the store waits. `at_work`: see `Journal`.

    Raises: StorageError; OrderError without what the order's compression needs. Then nothing stays open, the record neither.
    """
    with contextlib.ExitStack() as opened:
        if record is not None:
            opened.callback(record.close)
        recorded = None if record is None else record.files
        roll_back(job.directory, recorded)
        sinks: list[JournalSink] = []
        for sink in _files(job, section, facts, clock, recorded):
            opened.callback(sink.close)
            sinks.append(sink)
        payloads = None
        if section.warc:
            payloads = FetchHistory(job.state / PAYLOADS)
            opened.callback(payloads.close)
            sinks.append(payloads)
        if record is not None:
            with storage_errors(record.path):
                record.begin({name: mark for sink in sinks for name, mark in sink.marks().items()})
        patient_s = RETRY_S if retry_s is None else retry_s
        journal = Journal(*sinks, record=record, retry_s=patient_s, at_work=at_work)
        files = JournalFiles(journal, payloads)
        opened.pop_all()
    return files


def roll_back(directory: Path, recorded: Mapping[str, FileMark] | None) -> None:
    """Cut the logs of a killed run to the last group that was recorded, while nobody writes to them (blocks).

    `WarcFiles` does the same with its own. `recorded`: see `GroupRecord.files`. Raises: StorageError.
    """
    for name in _LOGS:
        path = directory / name
        mark = None if recorded is None else recorded.get(path.name)
        if mark is None:
            continue
        with storage_errors(path):
            surplus = cut_back(path, mark)
        if surplus is None:
            log.warning(
                "this log was rotated or replaced after the crawl was killed: nothing is cut, so it may have lines of URLs "
                "that are fetched again",
                path=str(path),
            )
        elif surplus:
            log.info("the lines of a group that was not complete were cut", path=str(path), bytes=surplus)


def warcs_of(recorded: Mapping[str, FileMark]) -> dict[str, FileMark]:
    """The recorded files without those of lines. Pure."""
    logs = {Path(name).name for name in _LOGS}
    return {name: mark for name, mark in recorded.items() if name not in logs}


def _files(
    job: JobFolder,
    section: WriteSection,
    facts: Mapping[str, str],
    clock: Callable[[], float],
    recorded: Mapping[str, FileMark] | None,
) -> Iterator[JournalSink]:
    """The files that the order asks for, opened one by one, in the order in which they are written.

    Raises: StorageError; OrderError without what the compression of the WARC files needs.
    """
    if section.warc:
        prefix, size_bytes = section.warc_prefix, section.warc_size_bytes
        options = WarcOptions(
            prefix=prefix,
            size_bytes=size_bytes,
            facts=facts,
            is_alone=job.has_own_warc,
            compression=compression_of(section.compression, section.deflate, section.zstd_dictionary),
        )
        yield WarcFiles(job.warc, options, clock, with_place, recorded)
    else:
        with storage_errors(job.warc):  # an earlier run with WARC files may have left some open
            if job.warc.is_dir():
                finish_left_over(job.warc, "*" if job.has_own_warc else f"{section.warc_prefix}-*", recorded)
    yield LineFile(job.crawl_log, "crawl_log")
    if section.pages:
        yield LineFile(job.pages, "pages")
    if section.links:
        yield LineFile(job.links, "links")
    yield LineFile(job.errors, "errors")


#: What the `warcinfo` record says of `[write] redact`.
_REDACTED = {
    "all": "Set-Cookie, and the values of logins, of all sites",
    "secrets": "Set-Cookie, and the values of logins, of sites for which a login is used",
    "none": "",
}


def warc_facts(order: CrawlOrder, section: WriteSection, job: str) -> dict[str, str]:
    """The fields of the WARC files' `warcinfo` record; `job` is the job's name."""
    return {
        "software": f"anabranch/{VERSION}",
        "format": "WARC File Format 1.1",
        "conformsTo": "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "isPartOf": job,
        "operator": section.operator,
        "hostname": socket.gethostname(),
        "robots": order.robots.robots,
        "redacted": _REDACTED[section.redact],
        "http-header-user-agent": order.agent.sent_user_agent,
        "order": json.dumps(changed_keys(order), ensure_ascii=True),
    }
