"""SMM: the shared memory-mapped signature store, one bit per URL.

A key's signature (`addresses.py`) is an address in the store's files (`bitfiles.py`). A bit that is 0 proves that the key
was never marked; a bit that is 1 may be another key's. Two levels suffice for CRC-32: 2^32 bits, all files mapped. With
a longer signature and more levels collisions are rare, but nearly every key has a page or a file of its own. A store that
is held alone is compact while it has few keys (`growing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.files import Closing, formatfile
from anabranch.dedup.files.mapped import PAGE_BYTES
from anabranch.dedup.keys import BoolArray, IntArray
from anabranch.dedup.smm.addresses import FileIndex, Signature, check_value, signature_named
from anabranch.dedup.smm.bitfiles import BitFiles
from anabranch.dedup.smm.growing import ADDRESSES_FILE, COMPACT_KEY_BYTES, GrowingBits, write_addresses
from anabranch.dedup.smm.mapping import create_files, ledger_bytes
from anabranch.dedup.smm.sharing import Ledger, Sharing

MAGIC = "anabranch smm"
VERSION = 2
#: Of a store that began in its compact form: programs that do not know that form must not open it.
COMPACT_VERSION = 3


def shape(signature: str, levels: tuple[int, ...]) -> tuple[FileIndex, Signature]:
    """Return the file index and the signature of a store. Raises: BadParameters if one is unknown or they do not fit."""
    index, chosen = FileIndex(levels), signature_named(signature)
    if index.address_bytes > chosen.width_bytes:
        raise BadParameters(f"levels {levels} ask for more than the {chosen.width_bytes} bytes of {signature}")
    return index, chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class SmmStatistics:
    """A store at one moment."""

    signature: str
    levels: tuple[int, ...]  #: bytes of the signature that each level takes
    bits: int
    bits_set: int
    fill: float  #: share of bits set: the probability that a key never marked meets a set bit
    files: int
    files_used: (
        int | None
    )  #: files that hold bits; None for three levels or more, where each would have to be looked at
    bytes_touched: int | None  #: of the disk, for bits; None likewise
    is_compact: bool  #: so few bits that they are in one small file
    is_linear: bool = False  #: the signature's collisions are those of whole sites


class Smm(Closing):
    """The store of one folder. Use `Smm.open`. Other threads, and forked processes, open it themselves.

    `add` reports a key as new to exactly one of several processes, and all see a mark at once. If one is killed in the
    middle of a batch, some of its bits may be set.
    """

    def __init__(self, signature: str, index: FileIndex, bits: BitFiles | GrowingBits) -> None:
        self._name = signature
        self._signature = signature_named(signature)
        self._index = index
        self._bits = bits
        #: The calls by address: a caller that asks first and marks later hashes each key once.
        self.are_clear = bits.are_clear
        self.set = bits.set
        self.sync = bits.sync
        self.release_pages = bits.release_pages
        self.check = bits.check

    @classmethod
    def open(
        cls, folder: Path, signature: str = "crc32", levels: tuple[int, ...] = (1, 3), *, alone: bool = False
    ) -> Self:
        """Open a folder's store, or make it if the folder is new or empty; several processes may do so at once.

        `signature` is a name in `SIGNATURES` or `package.module:function`. A store held `alone` refuses other openings, needs
        no lock per batch, and is compact while it is small; a compact store is always held alone. Raises: as
        `UniqFilter.open`.
        """
        index, chosen = shape(signature, levels)
        names: formatfile.Parameters = {"signature": signature, "signature_of_123456789": check_value(chosen)}
        parameters = {**names, "levels": list(levels), "page_bytes": PAGE_BYTES}
        with ExitStack() as undo:
            sharing = Sharing(folder)
            undo.callback(sharing.close)
            with sharing:
                wanted = formatfile.Format(magic=MAGIC, version=_version(folder, alone=alone), parameters=parameters)
                if not formatfile.adopt(folder, wanted):
                    _make(folder, index, is_compact=wanted.version == COMPACT_VERSION)
                    formatfile.complete(folder, wanted)
                is_compact = (folder / ADDRESSES_FILE).exists()
                bits = (
                    GrowingBits(folder, index, sharing) if is_compact else BitFiles(folder, index, sharing, alone=alone)
                )
            if alone or is_compact:
                sharing.end_turns()
            undo.pop_all()
        return cls(signature, index, bits)

    @property
    def bits(self) -> int:
        """Number of bits of the whole store."""
        return self._index.files * self._index.file_bits

    @property
    def bits_set(self) -> int:
        """Number of set bits; after a crash it may miss what was being set then, until `check`."""
        return self._bits.bits_set

    @property
    def fill(self) -> float:
        """Share of bits set: the probability that a key never marked meets a set bit."""
        return self.bits_set / self.bits

    @property
    def memory_bytes(self) -> int:
        """Bytes of addresses that are in memory, while the store is compact."""
        return self._bits.bits_set * COMPACT_KEY_BYTES if self._bits.is_compact else 0

    @property
    def mapped_bytes(self) -> int:
        """Bytes of mapped files that hold bits; 0 where each file would have to be looked at. Cost: 50 µs."""
        used = None if self._bits.is_compact else self._bits.used
        return 0 if used is None else used.bytes

    def statistics(self) -> SmmStatistics:
        """The store at this moment. Cost: 50 µs."""
        files, touched = self._bits.used or (None, None)
        return SmmStatistics(
            signature=self._name,
            levels=self._index.levels,
            bits=self.bits,
            bits_set=self.bits_set,
            fill=self.fill,
            files=self._index.files,
            files_used=files,
            bytes_touched=touched,
            is_compact=self._bits.is_compact,
            is_linear=getattr(self._signature, "is_linear", False),
        )

    def addresses(self, keys: Sequence[bytes]) -> IntArray:
        """The keys' addresses."""
        return self._signature.addresses(keys, self._index.address_bytes)

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key's bit is 0: it was certainly never marked. Cost: one page touched per key."""
        return self.are_clear(self.addresses(keys))

    def is_unseen(self, key: bytes) -> bool:
        """`unseen` of one key, several times as fast as a batch of one."""
        return self._bits.is_clear(self._signature.address(key, self._index.address_bytes))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Set the keys' bits. Raises: StoreFull (an OSError) with no bit of this batch set; it may be repeated."""
        self.set(self.addresses(keys))

    def mark_one(self, key: bytes) -> None:
        """`mark` of one key, several times as fast as a batch of one."""
        self._bits.set_one(self._signature.address(key, self._index.address_bytes))

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new, to one process only; a signature is new once in a batch. Raises as `mark`."""
        return self._bits.test_and_set(self.addresses(keys))

    def close(self) -> None:
        """Sync, unmap and unlock; a second call does nothing. Raises: OSError from the sync, with the files closed."""
        self._bits.close()

    def __repr__(self) -> str:
        state = "closed" if self._bits.is_closed else f"{self.bits_set} of {self.bits} bits set"
        return f"<Smm {self._name} {self._index.levels} {state}>"


def _version(folder: Path, *, alone: bool) -> int:
    """The version of the folder's store, or of a new one."""
    path = folder / formatfile.NAME
    if not path.exists():
        return COMPACT_VERSION if alone else VERSION
    return COMPACT_VERSION if formatfile.read_record(path).get("version") == COMPACT_VERSION else VERSION


def _make(folder: Path, index: FileIndex, *, is_compact: bool) -> None:
    """Make the files of a store without bits."""
    if is_compact:
        write_addresses(folder, ())
        Ledger.create(folder, ledger_bytes(index))
    else:
        create_files(folder, index)
