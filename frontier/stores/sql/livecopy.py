"""A copy of a store's file while its owner writes to it.

SQLite's own backup cannot make it: the owner holds the file with `locking_mode=EXCLUSIVE` (see `frontier.stores.sqlite`), so
any other connection is refused as long as it lives. But the files can be read. The log grows at its end until it is begun
anew, which changes its header; and the file itself is written only with pages that are in the log. So the file, copied first,
and the log, copied then, are together the store as it was at the end of some transaction, if the log was not begun anew
meanwhile: its header is the same before and after. What a checkpoint wrote into the file while it was copied is in the log,
too, and a transaction that was being written to the log has no commit there, and is left out.

The log is begun anew every 64 MiB, in seconds on a busy crawl. So a copy holds a shared `flock` on it, which ends with its
process, and as long as it is there the owner begins the log anew every 256 MiB only.
(https://www.sqlite.org/fileformat2.html#the_write_ahead_log)
"""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from anabranch.frontier.errors import StoreInUse
from anabranch.frontier.stores.contract import CHECKPOINT, FILTER
from anabranch.frontier.stores.sql.schema import NOTE
from anabranch.frontier.stores.sql.sqlite import log_of, translated

#: Copies until one is whole. The first one may meet a log that is long already.
_TRIES = 5
_HEADER_BYTES = 32
#: What the note says of the filter: the position of `StoreDecides`.
POSITION = "copy-1"


def copy_live(file: Path, copy: Path) -> None:
    """Copy the store in `file` to `copy`, marked as closed in order by an owner whose filter is `StoreDecides`.

    The owner goes on meanwhile; as much room and time as the file takes. Raises: StoreInUse if the owner writes so much that no
    copy becomes whole; StoreUnavailable, FormatMismatch; OSError.
    """
    with _kept(log_of(file)):
        _copy(file, copy)
    try:
        _mark(copy)
    except sqlite3.Error as error:
        raise translated(file, error) from error


def _copy(file: Path, copy: Path) -> None:
    log, log_copy = log_of(file), log_of(copy)
    for _ in range(_TRIES):
        before = _header(log)
        shutil.copyfile(file, copy)
        if before:
            shutil.copyfile(log, log_copy)
        if _header(log) == before:
            return
        log_copy.unlink(missing_ok=True)
    raise StoreInUse(f"{file}: it is being written too fast to be looked at; try again, or wait until its owner ends")


class StoreDecides:
    """A `SeenFilter` for such a copy: it knows nothing, so that only what the store has counts as seen."""

    blocks = False

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """None of them was marked."""
        return [True] * len(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        """The store has them."""

    def sync(self) -> None:
        """There is nothing to sync."""

    def position(self) -> str:
        """What the copy notes, so that nothing is marked again."""
        return POSITION

    def close(self) -> None:
        """There is nothing to let go of."""

    def facts(self) -> dict[str, float]:
        """It has no figures."""
        return {}


@contextmanager
def _kept(log: Path) -> Iterator[None]:
    """Ask the owner of the log to begin it anew later."""
    try:
        opened = log.open("rb")
    except FileNotFoundError:  # there is nothing to begin anew
        yield
        return
    with opened:
        with suppress(OSError):  # a file system without such locks: the log may be begun anew
            fcntl.flock(opened, fcntl.LOCK_SH)
        yield


def _header(log: Path) -> bytes:
    """The log's header, whose salts change when it is begun anew; empty if there is no log."""
    try:
        with log.open("rb") as opened:
            return opened.read(_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _mark(copy: Path) -> None:
    """The copy's owner is alive, so nothing is to be made good as after his death."""
    facts = {"clean": "1", NOTE + FILTER: POSITION, NOTE + CHECKPOINT: "0"}
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.executemany("INSERT OR REPLACE INTO crawl VALUES (?, ?)", facts.items())
