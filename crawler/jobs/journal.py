"""What a visit leaves behind is on disk when its writer goes on, at the price of one sync per file for many.

Writers put their entries in a list and wait; what comes in one turn of the loop is handed over at once. A thread takes all that
waits, gives the group to each sink in turn (the WARC files first, then the logs), each of which writes and syncs once, and lets
the whole group go on; meanwhile the next group gathers. So 64 writers pay for one sync, not for 64. While groups are large
the thread begins one only every `GROUP_S` seconds: on a fast disk it would else take the processor from the loop for each
few. A group counts in all sinks or in none.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple, Protocol

import structlog

from anabranch.crawler.archiving.exchanges import Exchange, Place
from anabranch.crawler.jobs.durablefiles import AppendOnlyFile
from anabranch.crawler.outcomes.errors import JournalFailed, journal_error, storage_errors
from anabranch.crawler.outcomes.exhaustion import exhausted
from anabranch.frontier.cancellation import to_the_end

log = structlog.get_logger(__name__)

#: After a group of so many the next one gathers for so long, from the beginning of the last.
LARGE_GROUP = 8
GROUP_S = 0.005

#: The line of an entry that a file takes.
Lines = Literal["crawl_log", "pages", "links", "errors"]


class Entry(NamedTuple):
    """What is written of one visit: lines with their newline, and an exchange; None for nothing."""

    crawl_log: bytes | None = None
    pages: bytes | None = None
    links: bytes | None = None
    errors: bytes | None = None
    exchange: Exchange | None = None
    place: Place | None = None  #: where the exchange was written; for sinks behind the WARC files, which fill it in

    @property
    def is_fit(self) -> bool:
        """Each line is one, or some: a line without its newline would be cut as torn."""
        for line in (self.crawl_log, self.pages, self.links, self.errors):
            if line is not None and line[-1:] != b"\n":
                return False
        return True


class Sink(Protocol):
    """A place that groups of entries are written to. All is called in the journal's thread, group by group:
    `append`, then `keep` if all sinks could, else `take_back`.
    """

    @property
    def path(self) -> Path:
        """The file that a failure is about, for the operator."""

    def append(self, entries: Sequence[Entry]) -> Sequence[Entry] | None:
        """Write what the group has for this sink, durably if the next run needs it; answer the entries as the sinks behind
        shall have them, or None if nothing is added to them. Raises: OSError, maybe half done.
        """

    def keep(self) -> None:
        """What was appended counts. Must not fail."""

    def take_back(self) -> None:
        """What was appended since `keep` does not count, and is removed as far as the disk allows. Must not fail."""

    def close(self) -> None:
        """Nothing more comes. Must not fail; a second call does nothing."""


class LineFile:
    """A sink for lines: an append-only file. Its folder must exist. An operator may move, remove or cut the file at any time.

    Opening cuts a torn last line. Raises: StorageError if the file cannot be opened.
    """

    def __init__(self, path: Path, lines: Lines) -> None:
        with storage_errors(path):
            self._file = AppendOnlyFile(path)
        self._line = attrgetter(lines)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def append(self, entries: Sequence[Entry]) -> None:
        """Write the lines of all to the file that has the name now, with one stat and one sync; only the stat for no line."""
        self._file.follow()
        self._file.append(b"".join(filter(None, map(self._line, entries))))

    def keep(self) -> None:
        """The lines count."""
        self._file.keep()

    def take_back(self) -> None:
        """Cut the lines that do not count."""
        self._file.take_back()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Writer(NamedTuple):
    """One writer and what it wants written."""

    entry: Entry
    written: asyncio.Future[None] | None  #: None: it does not wait


class Journal:
    """Sinks that are written together, from one event loop. They are the journal's from now on: `close` closes them.

    Cost of a write: one sync per sink, shared by all that wait at the time.
    """

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self._gathered: list[_Writer] = []  # in this turn of the loop, which alone knows them
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()  # guards the three below
        self._waiting: list[_Writer] = []
        self._failed: JournalFailed | None = None
        self._is_closing = False
        self._broken: Exception | None = None  # what a sink raised that could not be closed
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    async def write(self, entry: Entry) -> None:
        """Give the entry to each sink; return when all of it is durable. What the entry holds must not change meanwhile.

        A writer that is cancelled while it waits has its entry written all the same; with an exchange it is let go only then,
        since the body is read meanwhile. Raises: JournalFailed after a failed
        write or on a closed journal, ValueError for a line without a newline.
        """
        if not entry.is_fit:
            raise ValueError("a line must end with a newline")
        self._refuse_if_over()
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gather(_Writer(entry, written))
        if entry.exchange is None:
            await written
        else:  # its body is being read: a writer that went on would close it
            await to_the_end(_until(written))

    def follow(self) -> None:
        """Have the files of lines go on where their names are now, though nothing is to be written. Called from the loop."""
        if self._failed is None and not self._is_closing:
            self._gather(_Writer(Entry(), None))

    async def close(self) -> None:
        """Write what waits, then close the sinks. A second call does nothing. Raises: what a sink raised though it must not."""
        self._hand_over()
        with self._changed:
            self._is_closing = True
            self._changed.notify()
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
        """Give the thread what was gathered; it is woken by the first that waits."""
        gathered, self._gathered = self._gathered, []
        with self._changed:
            if gathered and not self._waiting:
                self._changed.notify()
            self._waiting += gathered

    def _refuse_if_over(self) -> None:
        if self._failed is not None:
            raise _again(self._failed)
        if self._is_closing:
            raise JournalFailed("the journal is closed")

    def _work(self) -> None:
        """The thread: group after group until the journal is closed and nothing waits."""
        may_begin = 0.0
        while group := self._next_group(may_begin):
            may_begin = monotonic() + GROUP_S if len(group) >= LARGE_GROUP else 0.0
            failed = self._failed or self._appended(group)
            with self._changed:
                self._failed = failed
            # A closed loop has no writers that could wait.
            with contextlib.suppress(RuntimeError):
                assert self._loop is not None
                self._loop.call_soon_threadsafe(_let_go, group, failed)
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 - it is raised again, by `close`
                self._broken = error

    def _next_group(self, may_begin: float) -> list[_Writer]:
        """All that waits, as soon as something does and the time has come; empty when the journal is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closing)
            while not self._is_closing and (early_s := may_begin - monotonic()) > 0:
                self._changed.wait(early_s)  # nobody wakes it but who closes
            group, self._waiting = self._waiting, []
            return group

    def _appended(self, group: Sequence[_Writer]) -> JournalFailed | None:
        """Append a group; why it failed, if so. The thread goes on: without it the writers would wait for ever."""
        try:
            return self._append([writer.entry for writer in group])
        except Exception as error:  # noqa: BLE001 - it is raised by the writers
            return _defect(error, self._sinks[0].path)

    def _append(self, entries: Sequence[Entry]) -> JournalFailed | None:
        """Make a group durable, or take it back as far as the disk allows; why it failed, if so."""
        for sink in self._sinks:
            appended = _appended(sink, entries)
            if isinstance(appended, JournalFailed):
                _take_back(self._sinks)
                return appended
            entries = appended
        return _kept(self._sinks)


def _appended(sink: Sink, entries: Sequence[Entry]) -> Sequence[Entry] | JournalFailed:
    """Append to one sink; the entries for the next one, or what went wrong. A defect must not leave the writers waiting for
    ever, so it is a failure, too.
    """
    try:
        return sink.append(entries) or entries
    except OSError as error:
        failed = journal_error(error, sink.path)
        failed.__cause__ = error
    except Exception as error:  # noqa: BLE001 - it is raised by the writers
        failed = _defect(error, sink.path)
    return failed


def _take_back(sinks: Sequence[Sink]) -> None:
    """Let a group count in no sink. A defect of one must neither keep the others from it nor end the thread."""
    for sink in sinks:
        try:
            sink.take_back()
        except Exception:
            log.exception("what was written to a file of the job cannot be taken back", path=str(sink.path))


def _kept(sinks: Sequence[Sink]) -> JournalFailed | None:
    """Let a group count in all sinks; what went wrong, which must not leave the writers waiting for ever, either."""
    for sink in sinks:
        try:
            sink.keep()
        except Exception as error:  # noqa: BLE001 - it is raised by the writers
            return _defect(error, sink.path)
    return None


def _defect(error: Exception, path: Path) -> JournalFailed:
    """What to say of an error that no sink may raise; a lack of memory is no defect of ours."""
    advice = exhausted(error)
    if advice is None:
        log.error("a file of the job cannot be written, or not counted", path=str(path), exc_info=error)
    failed = JournalFailed(f"{path}: {advice or f'{type(error).__name__}: {error}'}")
    failed.__cause__ = error
    return failed


def _again(failed: JournalFailed) -> JournalFailed:
    """The same failure for another writer: one exception is raised at one place."""
    error = type(failed)(*failed.args)
    error.__cause__ = failed.__cause__
    return error


async def _until(written: asyncio.Future[None]) -> None:
    await written


def _let_go(group: Sequence[_Writer], failed: JournalFailed | None) -> None:
    """In the event loop: end the wait of a group's writers, apart from those that were cancelled."""
    for writer in group:
        if writer.written is None or writer.written.done():
            continue
        if failed is None:
            writer.written.set_result(None)
        else:
            writer.written.set_exception(_again(failed))
