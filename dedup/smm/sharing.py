"""Several processes of one machine, one store: who may change it now, and the ledger that they share.

`Sharing` uses two advisory locks (flock), which the kernel frees when a process ends. The lock on the folder serialises
opening, changing a batch of bits, and closing. The lock on the file PAGES is held for as long as the store is open: shared
by all, or exclusive by one.

`Ledger` is the file PAGES, mapped by all processes: a header, and a body that depends on the files (`mapping.py`).
Header, eight 64-bit numbers in the machine's order (little-endian): magic; version; writers that have begun and not ended
well; bits set in the store; 1 while a batch is being set; 1 if the number of set bits may be wrong. A writer counts itself,
durably, before its first bit, and as ended after its last sync. So after a crash the number of writers does not go back to
0, and the next process that opens the store alone knows that the number of set bits may be wrong.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path

import numpy as np

from anabranch.dedup.errors import FilterClosed, FilterInUse, FormatMismatch
from anabranch.dedup.files.durable import store_full_errors, sync_path, write_file
from anabranch.dedup.files.locks import try_lock, wait_lock
from anabranch.dedup.files.mapped import MappedFiles
from anabranch.dedup.keys import ByteArray


class Sharing:
    """One opening of a folder. `with sharing:` is a turn: no other process has one meanwhile. Not nested."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._turn = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        self._presence = -1
        self._has_turns = True
        self._process = os.getpid()

    def attend(self, path: Path, *, alone: bool) -> bool:
        """Lock `path` as a user of the folder, in a turn; True if no other process has it open. A later call only
        answers.

        Raises: FilterInUse if another has it open and one of the two wants it alone.
        """
        if self._presence >= 0:
            return self.is_alone()
        try:
            self._presence = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise FormatMismatch(f"{path} is missing: the store is damaged") from error
        if try_lock(self._presence):
            # No other process comes between the two locks: all openings are turns, and this is one.
            is_first = alone or try_lock(self._presence, shared=True)
            assert is_first
            return True
        if alone or not try_lock(self._presence, shared=True):
            raise FilterInUse(f"{self._folder} is open elsewhere; end the process that uses it first")
        return False

    def end_turns(self) -> None:
        """Take none from now on, since the folder is held alone."""
        self._has_turns = False

    def is_alone(self) -> bool:
        """True if no other process has the folder open; in a turn."""
        if not self._has_turns:
            return True
        is_alone = try_lock(self._presence)
        wait_lock(self._presence, shared=True)  # a failed upgrade may have lost it
        return is_alone

    @property
    def is_this_process(self) -> bool:
        """False in a process that was forked off after the opening."""
        return self._process == os.getpid()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            raise FilterClosed(f"{self._folder} was opened before this process was forked off: open it here again")
        if self._turn < 0:
            raise FilterClosed(f"the store {self._folder} is closed")
        if self._has_turns:
            fcntl.flock(self._turn, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        if self._has_turns:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the folder; a second call does nothing."""
        for fd in (self._presence, self._turn):
            if fd >= 0:
                os.close(fd)
        self._presence = self._turn = -1


LEDGER_FILE = "PAGES"

_HEADER_BYTES = 64
_MAGIC = int.from_bytes(b"ANASMMPG", "little")
_VERSION = 2
_WRITERS, _BITS_SET, _IN_BATCH, _IS_ROUGH = 2, 3, 4, 5


class Ledger:
    """The PAGES file of a folder, with `body_bytes` after its header. Changes are made in a turn (`sharing.py`)."""

    def __init__(self, folder: Path, body_bytes: int) -> None:
        self.path = folder / LEDGER_FILE
        self._file = MappedFiles([self.path], _HEADER_BYTES + body_bytes, mmap.PAGESIZE)
        self._header = self._file.data[:_HEADER_BYTES].data.cast("Q")
        self.body: ByteArray = self._file.data[_HEADER_BYTES : _HEADER_BYTES + body_bytes]
        self._has_begun = False
        if self._header[0] != _MAGIC or self._header[1] != _VERSION:
            self.close()
            raise FormatMismatch(
                f"{self.path} is damaged: it does not start as a {LEDGER_FILE} file of version {_VERSION}"
            )

    @staticmethod
    def create(folder: Path, body_bytes: int) -> None:
        """Write the ledger of a store without bits; not sparse, so that it can be mapped without fear."""
        header = np.zeros(_HEADER_BYTES // 8, dtype="<u8")
        header[:2] = _MAGIC, _VERSION
        with store_full_errors(folder / LEDGER_FILE):
            write_file(folder / LEDGER_FILE, header.tobytes() + bytes(body_bytes))

    @property
    def bits_set(self) -> int:
        """Number of set bits in the store."""
        return self._header[_BITS_SET]

    @property
    def count_is_rough(self) -> bool:
        """The number of set bits may be off by what a crash interrupted; exact in a turn."""
        return bool(self._header[_IS_ROUGH] or self._header[_IN_BATCH])

    def open_first(self) -> None:
        """No other process has the store open: writers that never ended died."""
        if self._header[_WRITERS]:
            self._header[_IS_ROUGH] = 1

    def begin(self) -> None:
        """Record durably that this writer is at work. Raises: OSError."""
        self._header[_WRITERS] += 1
        try:
            self.sync()
        except OSError:
            self._header[_WRITERS] -= 1
            raise
        self._has_begun = True

    def begin_batch(self) -> None:
        """Bits will be set now."""
        if not self._has_begun:
            self.begin()
        if self._header[_IN_BATCH]:
            self._header[_IS_ROUGH] = 1
        self._header[_IN_BATCH] = 1

    def end_batch(self, bits: int) -> None:
        """Count bits that were set and had been clear."""
        self._header[_BITS_SET] += bits
        self._header[_IN_BATCH] = 0

    def correct(self, bits: int, *, is_alone: bool) -> None:
        """The bits were counted, and synced, after a crash: from now on their number is exact."""
        if not self._has_begun:
            self.begin()
        self._header[_BITS_SET] = bits
        self._header[_IN_BATCH] = self._header[_IS_ROUGH] = 0
        if is_alone:
            self._header[_WRITERS] = 1
        self.sync()

    def end(self) -> None:
        """Record durably that this writer ended well, all its bits being synced. Raises: OSError."""
        if self._has_begun and not self.count_is_rough:
            self._has_begun = False
            self._header[_WRITERS] -= 1
            self.sync()

    def sync(self) -> None:
        """Make the ledger durable."""
        with store_full_errors(self.path):
            sync_path(self.path)

    def close(self) -> None:
        """Unmap the file; a second call does nothing. No view of `body` may be in use."""
        self._header.release()
        self.body = np.zeros(0, dtype=np.uint8)
        self._file.close()
