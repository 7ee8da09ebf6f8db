"""The file PAGES of a store: what the processes that have it open must agree on.

It is mapped by all of them: a header, and a body whose meaning is the store's (`wholefiles.py`, `lazyfiles.py`).
Header, eight 64-bit numbers in the machine's order (little-endian): magic; version; writers that have begun and not
ended well; bits set in the store; 1 while a batch is being set; 1 if the number of set bits may be wrong.

A writer counts itself, durably, before its first bit, and again, after its last sync, as ended. So after a power loss,
or the death of any one of several writers, the number of writers does not go back to 0, and whoever opens the store
next, with nobody else there, knows that the number of set bits may be wrong. If a writer dies in the middle of a batch,
the next one finds the batch unfinished and notes the same at once.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from anabranch.dedup.batch import ByteArray
from anabranch.dedup.durablefiles import sync_path, write_file
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.mappedfiles import MappedFiles

NAME = "PAGES"

_HEADER_BYTES = 64
_MAGIC = int.from_bytes(b"ANASMMPG", "little")
_VERSION = 2
_WRITERS, _BITS_SET, _IN_BATCH, _IS_ROUGH = 2, 3, 4, 5


class Ledger:
    """The PAGES file of a folder, with `body_bytes` after its header. Changes are made in a turn (`sharing.py`)."""

    def __init__(self, folder: Path, body_bytes: int) -> None:
        self.path = folder / NAME
        self._file = MappedFiles([self.path], _HEADER_BYTES + body_bytes, mmap.PAGESIZE)
        self._header = self._file.data[:_HEADER_BYTES].data.cast("Q")
        self.body: ByteArray = self._file.data[_HEADER_BYTES : _HEADER_BYTES + body_bytes]
        self._has_begun = False
        if self._header[0] != _MAGIC or self._header[1] != _VERSION:
            self.close()
            raise FormatMismatch(f"{self.path} is damaged: it does not start as a {NAME} file of version {_VERSION}")

    @staticmethod
    def create(folder: Path, body_bytes: int) -> None:
        """Write the ledger of a store without bits; not sparse, so that it can be mapped without fear."""
        header = np.zeros(_HEADER_BYTES // 8, dtype="<u8")
        header[:2] = _MAGIC, _VERSION
        write_file(folder / NAME, header.tobytes() + bytes(body_bytes))

    @property
    def bits_set(self) -> int:
        """Number of set bits in the store."""
        return self._header[_BITS_SET]

    @property
    def count_is_rough(self) -> bool:
        """The number of set bits may be off by what a crash interrupted; exact in a turn."""
        return bool(self._header[_IS_ROUGH] or self._header[_IN_BATCH])

    def open_first(self) -> None:
        """Nobody else has the store open: writers that never ended died."""
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
        """So many bits were set that had been clear."""
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
        sync_path(self.path)

    def close(self) -> None:
        """Unmap the file; a second call does nothing. No view of `body` may be in use."""
        self._header.release()
        self.body = np.zeros(0, dtype=np.uint8)
        self._file.close()
