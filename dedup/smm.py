"""SMM: the shared memory-mapped signature store, one bit per URL.

A key's signature (`signature.py`) is an address in the store's files (`bitfiles.py`). A bit that is 0 proves that the key
was never marked; a bit that is 1 may be another key's of the same address.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dedup import folderformat
from dedup.batch import BoolArray, IntArray, first_of_each
from dedup.bitfiles import BitFiles
from dedup.errors import BadParameters, FilterClosed
from dedup.fileindex import FileIndex
from dedup.pagetable import PAGE_BYTES
from dedup.signature import Signature, signature_named

MAGIC = "anabranch smm"
VERSION = 1
#: More files than this are not mapped at once: the kernel allows a process some 65,000 maps in all.
MOST_FILES = 4096


class Smm:
    """The store of one folder. Use `Smm.open`.

    Marking and asking belong to one thread; `sync` may run in another one at the same time.
    """

    def __init__(self, folder: Path, index: FileIndex, signature: Signature) -> None:
        self._folder = folder
        self._index = index
        self._signature = signature
        self._files = BitFiles(folder, index)
        self._is_closed = False

    @classmethod
    def open(cls, folder: Path, signature: str = "crc32", levels: tuple[int, ...] = (1, 3)) -> Self:
        """Open a folder's store, or make it if the folder is new or empty.

        Cost: some 10 µs per file. Raises: FormatMismatch if the folder is not ours, is damaged or was made with
        another signature or other levels; BadParameters; StoreFull.
        """
        index, chosen = FileIndex(levels), signature_named(signature)
        if index.address_bytes > chosen.width_bytes:
            raise BadParameters(f"levels {levels} ask for more than the {chosen.width_bytes} bytes of {signature}")
        if index.files > MOST_FILES:
            raise BadParameters(f"levels {levels} make {index.files} files; at most {MOST_FILES} are mapped at once")
        parameters: folderformat.Parameters = {
            "signature": signature,
            "levels": list(levels),
            "page_bytes": PAGE_BYTES,
        }
        wanted = folderformat.Format(magic=MAGIC, version=VERSION, parameters=parameters)
        if not folderformat.adopt(folder, wanted):
            BitFiles.create(folder, index)
            folderformat.complete(folder, wanted)
        return cls(folder, index, chosen)

    @property
    def bits(self) -> int:
        """Number of bits of the whole store."""
        return self._index.files * self._index.file_bits

    @property
    def bits_set(self) -> int:
        """Number of set bits; after a crash it may miss what was being marked then, until `check`."""
        self._require_open()
        return self._files.bits_set

    @property
    def fill(self) -> float:
        """Share of bits set: the probability that a key never marked meets a set bit."""
        return self.bits_set / self.bits

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key's bit is 0: it was certainly never marked. Cost: one page touched per key."""
        self._require_open()
        return self._files.are_clear(self._addresses(keys))

    def is_unseen(self, key: bytes) -> bool:
        """`unseen` of one key, several times as fast as a batch of one."""
        self._require_open()
        return self._files.is_clear(self._signature.address(key, self._index.address_bytes))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Set the keys' bits.

        Raises: StoreFull (an OSError) with some pages allocated and no bit of this batch set; it may be repeated.
        """
        self._require_open()
        addresses = self._addresses(keys)
        self._files.set(addresses[self._files.are_clear(addresses)])

    def mark_one(self, key: bytes) -> None:
        """`mark` of one key, several times as fast as a batch of one."""
        self._require_open()
        address = self._signature.address(key, self._index.address_bytes)
        if self._files.is_clear(address):
            self._files.set_one(address)

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new. A signature twice in one batch is new once. Raises as `mark`."""
        self._require_open()
        addresses = self._addresses(keys)
        new = self._files.are_clear(addresses) & first_of_each(addresses.tolist())
        self._files.set(addresses[new])
        return new

    def sync(self) -> None:
        """Make all that was marked before this call durable (fdatasync, file by file). Raises: OSError."""
        self._require_open()
        self._files.sync()

    def check(self) -> None:
        """Count the bits and compare with the kept number; after a crash, correct that number instead.

        Cost: reads every allocated page, at most the whole store. Raises: InvariantBroken.
        """
        self._require_open()
        self._files.check()

    def close(self) -> None:
        """Sync and unmap; a second call does nothing. Raises: OSError from the sync, with the files let go."""
        if self._is_closed:
            return
        self._is_closed = True
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.bits_set} of {self.bits} bits set"
        return f"<Smm {self._signature.name} {self._index.levels} {state}>"

    def _require_open(self) -> None:
        if self._is_closed:
            raise FilterClosed(f"the store {self._folder} is closed")

    def _addresses(self, keys: Sequence[bytes]) -> IntArray:
        return self._signature.addresses(keys, self._index.address_bytes)
