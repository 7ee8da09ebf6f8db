"""Lines that are on disk when the writer goes on, at the price of one sync for many.

Writers put their lines in a list and wait. A thread takes all that waits, writes each file's lines at once, syncs each file
once, and lets the whole group go on; meanwhile the next group gathers. So 64 writers pay for one sync, not for 64.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crawler.jobs.durablefiles import AppendOnlyFile
from crawler.outcomes.errors import JournalFailed, journal_error, storage_errors


@dataclass(frozen=True, slots=True)
class _Entry:
    """One writer and what it wants written."""

    lines: tuple[bytes | None, ...]
    written: asyncio.Future[None]


class Journal:
    """Append-only files that are written together, from one event loop. Their folders must exist.

    Opening cuts a torn last line of each file. Cost of a write: one sync per file, shared by all that wait at the time.
    Raises: StorageError if a file cannot be opened.
    """

    def __init__(self, *paths: Path) -> None:
        self._files: list[AppendOnlyFile] = []
        with contextlib.ExitStack() as opened:
            for path in paths:
                with storage_errors(path):
                    self._files.append(AppendOnlyFile(path))
                opened.callback(self._files[-1].close)
            opened.pop_all()
        self._changed = threading.Condition()  # guards the four below
        self._waiting: list[_Entry] = []
        self._failed: tuple[OSError, Path] | None = None
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    async def write(self, *lines: bytes | None) -> None:
        """Append a line to each file (None: nothing for this one); return when all of them are durable.

        A writer that is cancelled while it waits has its lines written all the same. Raises: JournalFailed after a failed
        write or on a closed journal, ValueError if the lines do not fit the files.
        """
        if len(lines) != len(self._files) or any(line is not None and line[-1:] != b"\n" for line in lines):
            raise ValueError("one entry per file is needed, None or bytes that end with a newline")
        loop = asyncio.get_running_loop()
        entry = _Entry(lines, loop.create_future())
        with self._changed:
            self._refuse_if_over()
            self._loop = loop
            self._waiting.append(entry)
            self._changed.notify()
        await entry.written

    async def close(self) -> None:
        """Write what waits, then close the files. A second call does nothing more."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _refuse_if_over(self) -> None:
        if self._failed is not None:
            raise journal_error(*self._failed) from self._failed[0]
        if self._is_closing:
            raise JournalFailed("the journal is closed")

    def _work(self) -> None:
        """The thread: group after group until the journal is closed and nothing waits."""
        while group := self._next_group():
            failed = self._failed or self._append(group)
            with self._changed:
                self._failed = failed
            # A closed loop has no writers that could wait.
            with contextlib.suppress(RuntimeError):
                assert self._loop is not None
                self._loop.call_soon_threadsafe(_let_go, group, failed)
        for file in self._files:
            file.close()

    def _next_group(self) -> list[_Entry]:
        """All that waits, as soon as something does; empty when the journal is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closing)
            group, self._waiting = self._waiting, []
            return group

    def _append(self, group: Sequence[_Entry]) -> tuple[OSError, Path] | None:
        """Make a group durable, or take it back as far as the disk allows; the failure and its file, if any."""
        for number, file in enumerate(self._files):
            try:
                file.append(b"".join(filter(None, (entry.lines[number] for entry in group))))
            except OSError as error:
                for touched in self._files:
                    touched.take_back()
                return error, file.path
        for file in self._files:
            file.keep()
        return None


def _let_go(group: Sequence[_Entry], failed: tuple[OSError, Path] | None) -> None:
    """In the event loop: end the wait of a group's writers, apart from those that were cancelled."""
    for entry in group:
        if entry.written.done():
            continue
        if failed is None:
            entry.written.set_result(None)
        else:
            error = journal_error(*failed)
            error.__cause__ = failed[0]
            entry.written.set_exception(error)
