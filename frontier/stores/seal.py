"""The seal of a database file that was closed in order: its checksum, so that what a disk changes later is told as damage.

SQLite has checksums in its log and none in its file: a bit that flips in a row is another URL. The seal is a small file beside
the database with the epoch of the owner that closed it, and the size and CRC-32 of the file. It counts as long as nobody has
opened the database since, which the epoch tells; so nobody has to remove it first, and one that is too old is none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

_TEXT = re.compile(rb"anabranch seal 1\nepoch ([0-9]+)\nbytes ([0-9]+)\ncrc32 ([0-9a-f]{8})\n")
_CHUNK_BYTES = 1 << 20


class Seal(NamedTuple):
    """What a seal says, compared with the file."""

    epoch: int
    is_whole: bool  #: the file is what it was


def seal_of(database: Path) -> Path:
    """Where the seal of a database is."""
    return database.with_name(f"{database.name}.seal")


def read_seal(database: Path) -> Seal | None:
    """The seal and whether it fits; None if there is none that can be read. Cost: reads the file, 1.3 s a GB.

    Not while this process has the database open: closing any descriptor of a file drops all locks that the process has on it.
    Raises: OSError.
    """
    try:
        said = _TEXT.fullmatch(seal_of(database).read_bytes())
        if said is None:
            return None
        return Seal(int(said[1]), (int(said[2]), int(said[3], 16)) == size_and_crc(database))
    except FileNotFoundError:
        return None


def write_seal(database: Path, epoch: int) -> None:
    """Seal a file that the owner of this epoch has closed. Cost: as `read_seal`. Raises: OSError.

    It need not be durable: one that a power cut takes, or cuts, is none.
    """
    seal = seal_of(database)
    unfinished = seal.with_name(f"{seal.name}.new")
    unfinished.write_bytes(b"anabranch seal 1\nepoch %d\nbytes %d\ncrc32 %08x\n" % (epoch, *size_and_crc(database)))
    unfinished.replace(seal)


def size_and_crc(file: Path) -> tuple[int, int]:
    """The size and the CRC-32 of a file. Raises: OSError."""
    size = crc = 0
    with file.open("rb", buffering=0) as chunks:
        while chunk := chunks.read(_CHUNK_BYTES):
            size, crc = size + len(chunk), crc32(chunk, crc)
    return size, crc
