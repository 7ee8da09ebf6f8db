"""SMM: the shared memory-mapped signature store, one bit per URL.

A key's signature (`addresses.py`) is an address in the store's files (`bitfiles.py`). A bit that is 0 proves that the key
was never marked; a bit that is 1 may be another key's. Two levels suffice for CRC-32: 2^32 bits, all files mapped. With
a longer signature and more levels collisions are rare, but nearly every key has a page or a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.files import formatfile
from anabranch.dedup.files.mapped import PAGE_BYTES
from anabranch.dedup.keys import BoolArray, IntArray
from anabranch.dedup.smm.addresses import FileIndex, Signature, check_value, signature_named
from anabranch.dedup.smm.bitfiles import BitFiles
from anabranch.dedup.smm.mapping import create_files
from anabranch.dedup.smm.sharing import Sharing

MAGIC = "anabranch smm"
VERSION = 2


def shape(signature: str, levels: tuple[int, ...]) -> tuple[FileIndex, Signature]:
    """What a store of these is made of. Raises: BadParameters if there are none such, or they do not go together."""
    index, chosen = FileIndex(levels), signature_named(signature)
    if index.address_bytes > chosen.width_bytes:
        raise BadParameters(f"levels {levels} ask for more than the {chosen.width_bytes} bytes of {signature}")
    return index, chosen


class Smm(BitFiles):
    """The store of one folder. Use `Smm.open`. Other threads, and forked processes, open it themselves.

    `add` reports a key as new to exactly one of several processes, and all see a mark at once. If one is killed in the
    middle of a batch, some of its bits may be set.
    """

    def __init__(
        self, folder: Path, signature: str, index: FileIndex, sharing: Sharing, *, alone: bool = False
    ) -> None:
        super().__init__(folder, index, sharing, alone=alone)
        self._name = signature
        self._signature = signature_named(signature)

    @classmethod
    def open(
        cls, folder: Path, signature: str = "crc32", levels: tuple[int, ...] = (1, 3), *, alone: bool = False
    ) -> Self:
        """Open a folder's store, or make it if the folder is new or empty; several processes may do so at once.

        `signature` is a name in `SIGNATURES` or `package.module:function`. A store held `alone` refuses other openings, and
        needs no lock per batch. Raises: as `UniqFilter.open`.
        """
        index, chosen = shape(signature, levels)
        names: formatfile.Parameters = {"signature": signature, "signature_of_123456789": check_value(chosen)}
        parameters = {**names, "levels": list(levels), "page_bytes": PAGE_BYTES}
        wanted = formatfile.Format(magic=MAGIC, version=VERSION, parameters=parameters)
        with ExitStack() as undo:
            sharing = Sharing(folder)
            undo.callback(sharing.close)
            with sharing:
                if not formatfile.adopt(folder, wanted):
                    create_files(folder, index)
                    formatfile.complete(folder, wanted)
                made = cls(folder, signature, index, sharing, alone=alone)
            if alone:
                sharing.end_turns()
            undo.pop_all()
        return made

    @property
    def bits(self) -> int:
        """Number of bits of the whole store."""
        return self._index.files * self._index.file_bits

    @property
    def fill(self) -> float:
        """Share of bits set: the probability that a key never marked meets a set bit."""
        return self.bits_set / self.bits

    def addresses(self, keys: Sequence[bytes]) -> IntArray:
        """The keys' addresses: with `are_clear` and `set` a caller that asks first and marks later hashes each key once."""
        return self._signature.addresses(keys, self._index.address_bytes)

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key's bit is 0: it was certainly never marked. Cost: one page touched per key."""
        return self.are_clear(self.addresses(keys))

    def is_unseen(self, key: bytes) -> bool:
        """`unseen` of one key, several times as fast as a batch of one."""
        return self.is_clear(self._signature.address(key, self._index.address_bytes))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Set the keys' bits. Raises: StoreFull (an OSError) with no bit of this batch set; it may be repeated."""
        self.set(self.addresses(keys))

    def mark_one(self, key: bytes) -> None:
        """`mark` of one key, several times as fast as a batch of one."""
        self.set_one(self._signature.address(key, self._index.address_bytes))

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new, to one process only; a signature is new once in a batch. Raises as `mark`."""
        return self.test_and_set(self.addresses(keys))

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.bits_set} of {self.bits} bits set"
        return f"<Smm {self._name} {self._index.levels} {state}>"
