"""A copy of a store's file while its owner writes to it.

The owner holds the file with `locking_mode=EXCLUSIVE`, so SQLite's own backup is refused; but the files can be read. The log
grows at its end until it is restarted, which changes its header; the file is written only with pages that are in the log. So
file and log, copied in this order, are the store at the end of some transaction, if the log's header is the same before and
after. While a copy holds a shared `flock` on the log, the owner restarts it every 256 MiB only, not within seconds.
(https://www.sqlite.org/fileformat2.html#the_write_ahead_log)
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from anabranch.frontier.errors import FrontierError, StoreInUse
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.stores.contract import CHECKPOINT, FILTER, Counters
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.schema import NOTE
from anabranch.frontier.stores.sql.sqlite import SqliteRunner, log_of, translated
from anabranch.frontier.stores.totals import kept_counters

#: Copies until one is whole. The first one may meet a log that is long already.
_TRIES = 5
_HEADER_BYTES = 32
#: What a transaction needs beside the copy.
_LEAST_BYTES = 64 << 10
#: The largest file that is copied for its totals alone.
_SMALL_BYTES = 256 << 20
#: The filter's position in the copy's notes, and that of `StoreDecides`.
POSITION = "copy-1"


def copy_live(file: Path, copy: Path) -> None:
    """Copy the store in `file` to `copy`, marked as closed in order by an owner with the filter `StoreDecides`.

    The owner goes on meanwhile. Cost: room and time for the file. Raises: StoreInUse if the owner writes so much that no copy
    becomes whole; StoreUnavailable, FormatMismatch; OSError.
    """
    log, log_copy = log_of(file), log_of(copy)
    with _kept(log):
        for _ in range(_TRIES):
            before = _header(log)
            shutil.copyfile(file, copy)
            if before:
                shutil.copyfile(log, log_copy)
            if _header(log) == before:
                break
            log_copy.unlink(missing_ok=True)
        else:
            raise StoreInUse(f"{file}: it is written too fast to be looked at; try again, or wait until its owner ends")
    # The copy's owner is alive, so nothing has to be recovered as after its death.
    facts = {"clean": "1", NOTE + FILTER: POSITION, NOTE + CHECKPOINT: "0"}
    try:
        with closing(sqlite3.connect(copy)) as connection, connection:
            SqliteRunner(connection).write(statements.PUT_FACTS, [*facts.items()])
    except sqlite3.Error as error:
        disk = os.statvfs(copy.parent)
        if disk.f_bavail * disk.f_frsize < _LEAST_BYTES:  # the copy has just fitted, and SQLite calls that an I/O error
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(copy)) from error
        raise translated(file, error) from error


def live_counters(file: Path) -> Counters | None:
    """The totals of a store whose owner may hold it. None if they cannot be had soon: no store, a large one, or it is written.

    Cost: a copy of the file, at most `_SMALL_BYTES`.
    """
    with suppress(OSError, FrontierError), tempfile.TemporaryDirectory(prefix="anabranch-") as folder:
        if file.stat().st_size <= _SMALL_BYTES:
            copy = Path(folder) / file.name
            copy_live(file, copy)
            return kept_counters(copy)
    return None


class StoreDecides(ExactFilter):
    """A `SeenFilter` for such a copy: it knows no key, so that only the store's rows count as seen."""

    def mark(self, keys: Sequence[bytes]) -> None:
        """The store has them."""

    def position(self) -> str:
        """The position that the copy notes, so that nothing is marked again."""
        return POSITION

    def facts(self) -> dict[str, float | str]:
        """It has no figures."""
        return {}


@contextmanager
def _kept(log: Path) -> Iterator[None]:
    """Have the owner of the log restart it later."""
    try:
        opened = log.open("rb")
    except FileNotFoundError:  # there is nothing to restart
        yield
        return
    with opened:
        with suppress(OSError):  # a file system without such locks: the log may be restarted
            fcntl.flock(opened, fcntl.LOCK_SH)
        yield


def _header(log: Path) -> bytes:
    """The log's header, with salts that change at each restart; empty if there is no log."""
    try:
        with log.open("rb") as opened:
            return opened.read(_HEADER_BYTES)
    except FileNotFoundError:
        return b""
