"""The bits of a filter that was closed well, kept so that opening it again reads no log.

They lie in the file BITS (`room.py`). Whether they count is said by the record `image` in the MANIFEST: it is written
last, and taken away durably before the first change. It names the stamp in the file's header, the place and count of
each node, and the length of each log. An older image beside newer logs, or one of another state, disagrees with it in
one of these; then the bits are rebuilt from the logs. But a log that is shorter than recorded was damaged, and the
filter refused: it was synced before the image was written, and no log becomes shorter while there is an image. Bits
that are read into memory must have the recorded CRC-32; mapped ones are not read at all, which is the point of mapping
them, and have no checksum.
"""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.durablefiles import descriptor, sync_file, telling_full, write_all
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.leaves.arena import ArenaLeaves
from anabranch.dedup.leaves.nodes import NONE, Nodes
from anabranch.dedup.leaves.room import HEADER_BYTES, NAME, STAMP_BYTES, FileRoom, MemoryRoom, header, require_header

_AT_ONCE = 1 << 24  # bytes
_STAMP = re.compile(f"[0-9a-f]{{{2 * STAMP_BYTES}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What a MANIFEST says of the kept bits."""

    stamp: bytes  #: ties the file to the manifest
    size: int  #: bytes of all slots
    checksum: int | None  #: CRC-32 of these bytes; None: not taken, the file was mapped
    slots: list[int]  #: per node of the tree its slot, -1 for none
    counts: list[int]  #: per node
    loads: list[int]  #: per node
    lengths: dict[int, int]  #: bytes of each log, by node

    def record(self) -> dict[str, object]:
        """The image as a JSON object."""
        return {
            "stamp": self.stamp.hex(),
            "size": self.size,
            "checksum": self.checksum,
            "slots": self.slots,
            "counts": self.counts,
            "loads": self.loads,
            "lengths": sorted(self.lengths.items()),
        }

    @classmethod
    def of_record(cls, record: dict[str, object], nodes: int) -> Self | None:
        """The image that a record of a tree with so many nodes describes; None if it is none."""
        match record:
            case {
                "stamp": str(stamp),
                "size": int(size),
                "checksum": int() | None as checksum,
                "slots": list(slots),
                "counts": list(counts),
                "loads": list(loads),
                "lengths": list(lengths),
            } if _STAMP.fullmatch(stamp) and all(_are_numbers(pair, 2) for pair in lengths):
                image = cls(
                    stamp=bytes.fromhex(stamp),
                    size=size,
                    checksum=checksum,
                    slots=slots,
                    counts=counts,
                    loads=loads,
                    lengths=dict(lengths),
                )
                return image if all(_are_numbers(row, nodes) for row in (slots, counts, loads)) else None
            case _:
                return None

    def nodes_with_bits(self) -> set[int]:
        """Numbers of the nodes that have a slot."""
        return {node for node, slot in enumerate(self.slots) if slot != NONE}

    def nodes(self) -> Nodes:
        """The arrays as a table takes them."""
        slots, counts, loads = (np.array(row, dtype=np.int64) for row in (self.slots, self.counts, self.loads))
        return Nodes(slots, counts, loads)


class Place(Protocol):
    """Where the leaves of one filter are while it is open."""

    def fresh(self, slots: int) -> ArenaLeaves:
        """Leaves without a bit, with room for so many. Raises: OSError."""
        ...

    def restored(self, image: Image) -> ArenaLeaves | None:
        """The leaves of the image, with their bits; None if the file is not the one. Raises: OSError."""
        ...

    def keep(self, stamp: bytes) -> int | None:
        """Make the file durable under this stamp; answers its checksum, if it has one. Raises: OSError."""
        ...

    def close(self) -> None:
        """Let go of the leaves; a second call does nothing."""
        ...


class MemoryPlace:
    """Leaves in memory; the file is written at the end."""

    def __init__(self, folder: Path, parameters: DsbfParameters) -> None:
        self._path = folder / NAME
        self._shape = parameters.leaf_bits, parameters.hashes
        self._room = MemoryRoom()

    def fresh(self, slots: int) -> ArenaLeaves:
        """Leaves in new memory."""
        self._room = MemoryRoom()
        return ArenaLeaves(*self._shape, slots, self._room)

    def restored(self, image: Image) -> ArenaLeaves | None:
        """Read the file. Cost: 1 ms per MiB."""
        if not _is_there(self._path, self._shape, image):
            return None
        self._room.extend(image.size)
        checksum = 0
        with descriptor(self._path, os.O_RDONLY) as fd:
            for start in range(0, image.size, _AT_ONCE):
                part = self._room.data[start : start + _AT_ONCE]
                if os.preadv(fd, [part.data], HEADER_BYTES + start) < part.nbytes:
                    return None
                checksum = zlib.crc32(part.data, checksum)
        if image.checksum not in (None, checksum):
            return None
        return ArenaLeaves(*self._shape, room=self._room)

    def keep(self, stamp: bytes) -> int | None:
        """Write the file. Cost: a copy of all bits to the disk."""
        leaf_bits, hashes = self._shape
        checksum = 0
        try:
            with telling_full(self._path), descriptor(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as fd:
                write_all(fd, header(hashes, leaf_bits, stamp), 0)
                for start in range(0, self._room.data.size, _AT_ONCE):
                    part = self._room.data[start : start + _AT_ONCE].tobytes()
                    write_all(fd, part, HEADER_BYTES + start)
                    checksum = zlib.crc32(part, checksum)
                sync_file(fd)
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        return checksum

    def close(self) -> None:
        """Forget the bytes."""
        self._room.close()


class MappedPlace:
    """Leaves in the file itself, mapped shared: they need no memory of their own, and no copy at the end."""

    def __init__(self, folder: Path, parameters: DsbfParameters) -> None:
        self._path = folder / NAME
        self._shape = parameters.leaf_bits, parameters.hashes
        self._room = FileRoom(self._path, *self._shape)

    def fresh(self, slots: int) -> ArenaLeaves:
        """Leaves in a new file."""
        self._room.begin()
        return ArenaLeaves(*self._shape, slots, self._room)

    def restored(self, image: Image) -> ArenaLeaves | None:
        """Map the file. Cost: microseconds, then a page fault for each page that is touched."""
        if not _is_there(self._path, self._shape, image):
            return None
        self._room.resume(image.size)
        self._room.secure(0, image.size)  # a copy of the file may be sparse
        return ArenaLeaves(*self._shape, room=self._room)

    def keep(self, stamp: bytes) -> int | None:
        """Sync the file, then stamp it."""
        self._room.stamp(stamp)
        return None

    def close(self) -> None:
        """Unmap the file."""
        self._room.close()


#: Names of the places, as `Dsbf.open` takes them.
PLACES: dict[str, type[MemoryPlace] | type[MappedPlace]] = {"memory": MemoryPlace, "mapped": MappedPlace}


def _is_there(path: Path, shape: tuple[int, int], image: Image) -> bool:
    """True if the file is the one that the image was taken of, and of its size."""
    leaf_bits, hashes = shape
    if image.size <= 0 or image.size % (leaf_bits // 8):
        return False
    try:
        with descriptor(path, os.O_RDONLY) as fd:
            require_header(path, fd, header(hashes, leaf_bits, image.stamp))
            return os.fstat(fd).st_size == HEADER_BYTES + image.size
    except (FileNotFoundError, FormatMismatch):
        return False


def _are_numbers(row: object, length: int) -> bool:
    """True for a list of so many whole numbers that an array can hold."""
    return isinstance(row, list) and len(row) == length and all(type(n) is int and abs(n) < 1 << 63 for n in row)
