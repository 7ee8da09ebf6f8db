"""Levels as data: which file and which bit an address names.

`(1, 3)` takes the first byte of an address as the file's name and the other three as the bit offset in it; every
level before the last but one is a folder. Names are upper-case hex, two digits a byte. Bit 0 of a file is the most
significant bit of its first byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from anabranch.dedup.errors import BadParameters

_LARGEST_ADDRESS_BYTES = 7  # an address is a signed 64-bit integer
_LARGEST_OFFSET_BYTES = 5  # a file of 128 GiB; the next, 32 TiB, is more than common file systems take
_FEWEST_LEVELS = 2

#: Levels to choose from, smallest first; the last is the default: 2^32 bits.
_SIZES = ((1, 1), (1, 2), (1, 3))
_HIGHEST_FILL = 1 / 256


def levels_for(expected: int) -> tuple[int, ...]:
    """The smallest levels whose fill is at most 1/256 once `expected` distinct keys are marked.

    That is (1, 1) up to 256 keys, (1, 2) up to 65,664, (1, 3) up to 16.8 million. Beyond that it is (1, 3) as well, with
    the fill 1 - e^(-expected / 2^32): 2.3 % at 100 million, 21 % at 1,000 million.
    """
    for levels in _SIZES:
        if -math.expm1(-expected / 256 ** sum(levels)) <= _HIGHEST_FILL:
            return levels
    return _SIZES[-1]


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The shape of a store: 256 ** (all levels but the last) files of 256 ** (the last) bits."""

    levels: tuple[int, ...]  #: bytes of the address that each level takes

    def __post_init__(self) -> None:
        if len(self.levels) < _FEWEST_LEVELS or min(self.levels) < 1:
            raise BadParameters(f"levels {self.levels}: two or more are needed, of one byte or more each")
        if self.levels[-1] > _LARGEST_OFFSET_BYTES:
            raise BadParameters(f"levels {self.levels}: the last takes at most {_LARGEST_OFFSET_BYTES} bytes")
        if self.address_bytes > _LARGEST_ADDRESS_BYTES:
            raise BadParameters(f"levels {self.levels} take more than {_LARGEST_ADDRESS_BYTES} bytes together")

    @property
    def address_bytes(self) -> int:
        """Leading bytes of the signature that address a bit."""
        return sum(self.levels)

    @property
    def file_bits(self) -> int:
        """Bits in one file."""
        return 1 << 8 * self.levels[-1]

    @property
    def file_bytes(self) -> int:
        """Size of one file."""
        return self.file_bits // 8

    @property
    def files(self) -> int:
        """Number of files."""
        return 1 << 8 * sum(self.levels[:-1])

    def name(self, file: int) -> PurePosixPath:
        """Path of the file of that number, below the store's folder."""
        digits = f"{file:0{2 * sum(self.levels[:-1])}X}"
        parts, start = [], 0
        for width in self.levels[:-1]:
            parts.append(digits[start : start + 2 * width])
            start += 2 * width
        return PurePosixPath(*parts)

    def names(self) -> Iterator[PurePosixPath]:
        """All files' paths, in the order of their numbers."""
        return map(self.name, range(self.files))
